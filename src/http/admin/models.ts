import type { Member } from "../../admin/sessions.ts";
import {
  type AdminModel,
  AdminModelList,
  type ModelRoute,
  ResumedRoute,
  RouteResumption,
} from "../../api/admin/reports.ts";
import { type CatalogModel, toApiModel, upstreamOf } from "../../catalog/model.ts";
import { pricesByClass } from "../../credits/price.ts";
import { ApiError } from "../../errors.ts";
import { mayUse } from "../../gateway/plan.ts";
import { reportRoutes, toHealth } from "../../gateway/route-health.ts";
import { actorOf, adminEndpoint } from "./endpoint.ts";

const listModels = adminEndpoint({
  method: "GET",
  path: "/models",
  access: "member",
  operationId: "listModelsWithRoutes",
  summary: "List models with their facts and prices; operators also see their routes and the health of each",
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

/** The route is in the body, because its name contains slashes, which proxies decode in a path. */
const resumeRoute = adminEndpoint({
  method: "POST",
  path: "/routes/resume",
  access: "operator",
  operationId: "resumeRoute",
  summary:
    "End the pause of a route and close its circuits; takes effect within 1 s on one node and within 5 s on all nodes",
  body: RouteResumption,
  response: { status: 200, description: "The route and its health on this node.", schema: ResumedRoute },
  async handle({ gateway, audit, resumptions, clock }, call): Promise<ResumedRoute> {
    const { route } = call.body;
    const isKnown = gateway.catalog.list().some(({ routes }) => routes.some((one) => upstreamOf(one) === route));
    if (!isKnown) {
      const message = "There is no route with this name. GET /admin/v1/models lists the routes of all models.";
      throw new ApiError("invalid_value", message, { param: "route" });
    }
    await audit.record(actorOf(call), { action: "route.resume", organizationId: null, subjectId: route });
    await resumptions.apply();
    const health = gateway.circuits.health(clock()).find(({ provider, model }) => `${provider}/${model}` === route);
    return { object: "route", route, health: toHealth(health) };
  },
});

export const modelEndpoints = [listModels, resumeRoute];

function principalOf({ token }: Member) {
  return { organizationKind: "standard" as const, models: token.models === null ? null : new Set(token.models) };
}

function toModel(model: CatalogModel, routes: ModelRoute[] | null): AdminModel {
  return { ...toApiModel(model), playground: model.playground, prices: pricesByClass(model.prices), routes };
}
