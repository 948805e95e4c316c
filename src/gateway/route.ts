import type { Catalog, CatalogModel } from "../catalog/model.ts";
import type { Principal } from "../contract/principal.ts";
import { printable } from "../contract/wording.ts";
import { ApiError } from "../errors.ts";

const MODEL_ID_SHOWN_CHARACTERS_MAX = 128;

/** Whether a principal may use and see a model. */
export function mayUse(principal: Principal, model: CatalogModel): boolean {
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

/** The error for a model that is not there, or that is none of the caller's business. */
export function modelNotFound(modelId: string): ApiError {
  const name = printable(modelId, MODEL_ID_SHOWN_CHARACTERS_MAX);
  const message = `The model \`${name}\` does not exist or you do not have access to it.`;
  return new ApiError("model_not_found", message, { param: "model" });
}
