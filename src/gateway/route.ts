import type { Principal } from "../api/principal.ts";
import { printable } from "../api/wording.ts";
import type { Catalog, CatalogModel, Route } from "../catalog/model.ts";
import { ApiError } from "../errors.ts";

const MODEL_ID_SHOWN_CHARACTERS_MAX = 128;

/** Whether a principal may use and see a model. */
export function mayUse(principal: Pick<Principal, "organizationKind" | "models">, model: CatalogModel): boolean {
  if (principal.organizationKind === "playground" && !model.playground) return false;
  return principal.models === null || principal.models.has(model.id);
}

/** The model that a request names. Throws model_not_found or model_not_allowed. */
export function routeTo(catalog: Catalog, principal: Principal, modelId: string): CatalogModel {
  const model = catalog.find(modelId);
  if (model === undefined) throw modelNotFound(modelId);
  if (!mayUse(principal, model)) {
    throw new ApiError("model_not_allowed", `The access token may not use the model \`${model.id}\`.`, {
      param: "model",
    });
  }
  return model;
}

/**
 * The routes of a model in the order in which to try them: as they are listed, or, where they have weights, each first as
 * often as its weight says. `random` gives numbers from 0 up to 1.
 */
export function inOrder(routes: readonly Route[], random: () => number): readonly Route[] {
  if (routes.length === 1 || routes[0]?.weight === undefined) return routes;
  // The first of several exponential variables is each with a probability in proportion to its rate, and so on for the rest.
  const drawn = routes.map((route) => ({ route, at: -Math.log(1 - random()) / (route.weight ?? 1) }));
  return drawn.sort((one, other) => one.at - other.at).map(({ route }) => route);
}

/** The error for a model that is not there, or that is none of the caller's business. */
export function modelNotFound(modelId: string): ApiError {
  const name = printable(modelId, MODEL_ID_SHOWN_CHARACTERS_MAX);
  const message = `The model \`${name}\` does not exist or you do not have access to it.`;
  return new ApiError("model_not_found", message, { param: "model" });
}
