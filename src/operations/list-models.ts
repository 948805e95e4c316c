import type { AdminModelList } from "../api/admin/reports.ts";
import { pricesByClass } from "../credits/price.ts";
import { operation } from "./operation.ts";

export const listModelsWithRoutes = operation({
  route: "GET /models",
  access: "member",
  summary: "List models with their facts and prices; operators also see their routes and the health of each",
  answer: { status: 200, description: "The models.", schema: (s) => s.AdminModelList },
  async handle({ gateway, clock }, { who }): Promise<AdminModelList> {
    // Imported here, because every command loads the list of operations.
    const [{ toApiModel }, { mayUse }, { reportRoutes }] = await Promise.all([
      import("../catalog/model.ts"),
      import("../gateway/plan.ts"),
      import("../gateway/route-health.ts"),
    ]);
    const health = gateway.circuits.health(clock());
    const allowed = who?.role === "member" && who.token.models !== null ? new Set(who.token.models) : null;
    const usable = gateway.catalog.list().filter((model) => {
      return who?.role === "operator" || mayUse({ organizationKind: "standard", models: allowed }, model);
    });
    const data = usable.map((model) => ({
      ...toApiModel(model),
      playground: model.playground,
      prices: pricesByClass(model.prices),
      routes: who?.role === "operator" ? reportRoutes(model, health) : null,
    }));
    return { object: "list", data };
  },
});
