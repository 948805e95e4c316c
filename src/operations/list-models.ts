import type { Member } from "../admin/sessions.ts";
import type { AdminModel, AdminModelList, ModelRoute } from "../api/admin/reports.ts";
import { type CatalogModel, toApiModel } from "../catalog/model.ts";
import { pricesByClass } from "../credits/price.ts";
import { mayUse } from "../gateway/plan.ts";
import { reportRoutes } from "../gateway/route-health.ts";
import { operation } from "./operation.ts";

export const listModelsWithRoutes = operation({
  route: "GET /models",
  access: "member",
  summary: "List models with their facts and prices; operators also see their routes and the health of each",
  answer: { status: 200, description: "The models.", schema: (s) => s.AdminModelList },
  async handle({ gateway, clock }, { who }): Promise<AdminModelList> {
    const models = gateway.catalog.list();
    if (who?.role === "member") {
      const usable = models.filter((model) => mayUse(principalOf(who), model));
      return { object: "list", data: usable.map((model) => toModel(model, null)) };
    }
    const health = gateway.circuits.health(clock());
    return { object: "list", data: models.map((model) => toModel(model, reportRoutes(model, health))) };
  },
});

function principalOf({ token }: Member) {
  return { organizationKind: "standard" as const, models: token.models === null ? null : new Set(token.models) };
}

function toModel(model: CatalogModel, routes: ModelRoute[] | null): AdminModel {
  return { ...toApiModel(model), playground: model.playground, prices: pricesByClass(model.prices), routes };
}
