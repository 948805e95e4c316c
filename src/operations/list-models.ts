import type { AdminModelList } from "../api/admin/reports.ts";
import { pricesByClass } from "../credits/price.ts";
import { operation } from "./operation.ts";

export const listModelsWithRoutes = operation({
  route: "GET /models",
  permission: "models:read",
  summary: "List models with their facts and prices; operators also see their routes and the health of each",
  answer: { status: 200, description: "The models.", schema: (s) => s.AdminModelList },
  async handle({ gateway, clock }, { who, may }): Promise<AdminModelList> {
    // Imported here, because every command loads the list of operations.
    const [{ toApiModel }, { mayUse }, { reportRoutes }] = await Promise.all([
      import("../catalog/model.ts"),
      import("../gateway/plan.ts"),
      import("../gateway/route-health.ts"),
    ]);
    const health = gateway.circuits.health(clock());
    const models = who?.token?.models ?? null;
    const withRoutes = may("upstreams:read");
    const caller = { organizationKind: "standard", models: models && new Set(models) } as const;
    const usable = gateway.catalog.list().filter((model) => withRoutes || mayUse(caller, model));
    const data = usable.map((model) => ({
      ...toApiModel(model),
      playground: model.playground,
      prices: pricesByClass(model.prices),
      routes: withRoutes ? reportRoutes(model, health) : null,
    }));
    return { object: "list", data };
  },
});
