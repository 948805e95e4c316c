import type { Member } from "../../accounts/sessions.ts";
import { type CatalogModel, upstreamOf } from "../../catalog/model.ts";
import { toContractModel } from "../../catalog/to-contract.ts";
import { type AdminModel, AdminModelList, type ModelRoute } from "../../contract/admin/model.ts";
import type { RouteHealth } from "../../gateway/circuit.ts";
import { mayUse } from "../../gateway/route.ts";
import { pricesOf } from "../../ledger/requests.ts";
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
    const health = new Map(gateway.circuits.health(clock()).map((one) => [`${one.provider}/${one.model}`, one]));
    const routesOf = ({ routes }: CatalogModel): ModelRoute[] =>
      routes.map((route) => {
        const name = upstreamOf(route);
        const known = health.get(name);
        return { route: name, prices: pricesOf(route.prices), health: known === undefined ? null : toHealth(known) };
      });
    return { object: "list", data: models.map((model) => toModel(model, routesOf(model))) };
  },
});

export const modelEndpoints = [listModels];

function principalOf({ token }: Member) {
  return { organizationKind: "standard" as const, models: token.models === null ? null : new Set(token.models) };
}

function toModel(model: CatalogModel, routes: ModelRoute[] | null): AdminModel {
  return { ...toContractModel(model), playground: model.playground, prices: pricesOf(model.prices), routes };
}

function toHealth(health: RouteHealth): ModelRoute["health"] {
  const { state, lastFailure, recent, firstByteMs } = health;
  return {
    state,
    next_probe_at: optionalTime(health.nextProbeAtMs),
    limited_until: optionalTime(health.limitedUntilMs),
    last_failure: lastFailure && { failure: lastFailure.failure, at: new Date(lastFailure.atMs).toISOString() },
    last_success_at: optionalTime(health.lastSuccessAtMs),
    recent,
    first_byte_ms: firstByteMs,
  };
}

function optionalTime(timeMs: number | null): string | null {
  return timeMs === null ? null : new Date(timeMs).toISOString();
}
