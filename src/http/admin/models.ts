import type { Member } from "../../admin/sessions.ts";
import { type AdminModel, AdminModelList, type ModelRoute } from "../../api/admin/model.ts";
import type { CatalogModel } from "../../catalog/model.ts";
import { toContractModel } from "../../catalog/to-contract.ts";
import { pricesByClass } from "../../credits/price.ts";
import { mayUse } from "../../gateway/plan.ts";
import { reportRoutes } from "../../gateway/route-health.ts";
import { adminEndpoint } from "./endpoint.ts";

const listModels = adminEndpoint({
  method: "GET",
  path: "/models",
  access: "member",
  operationId: "listModelsWithRoutes",
  summary: "List models with their facts and prices, and for the operator with their routes and how these fare",
  response: { status: 200, description: "The models.", schema: AdminModelList },
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

export const modelEndpoints = [listModels];

function principalOf({ token }: Member) {
  return { organizationKind: "standard" as const, models: token.models === null ? null : new Set(token.models) };
}

function toModel(model: CatalogModel, routes: ModelRoute[] | null): AdminModel {
  return { ...toContractModel(model), playground: model.playground, prices: pricesByClass(model.prices), routes };
}
