import { Model, ModelList } from "../../api/model.ts";
import { toApiModel } from "../../catalog/model.ts";
import { mayUse, modelNotFound } from "../../gateway/plan.ts";
import { principalOf } from "../authentication.ts";
import type { Endpoint } from "./endpoint.ts";

export const listModels: Endpoint = {
  method: "GET",
  path: "/v1/models",
  scope: "models:read",
  operationId: "listModels",
  summary: "List models",
  description: "Every model that the token may use, with its facts and its price.",
  response: { description: "The models.", schema: ModelList },
  async handle({ gateway }, request): Promise<ModelList> {
    const principal = principalOf(request);
    const models = gateway.catalog.list().filter((model) => mayUse(principal, model));
    return { object: "list", data: models.map(toApiModel) };
  },
};

export const retrieveModel: Endpoint = {
  method: "GET",
  path: "/v1/models/*",
  scope: "models:read",
  operationId: "retrieveModel",
  summary: "Retrieve a model",
  description: "One model with its facts and its price. The id may contain slashes, encoded or not.",
  wildcard: { name: "model", description: "The model's id, as in the list of models." },
  response: { description: "The model.", schema: Model },
  async handle({ gateway }, request): Promise<Model> {
    const { "*": id } = request.params as { "*": string };
    request.modelName = id;
    const model = gateway.catalog.find(id);
    if (model === undefined || !mayUse(principalOf(request), model)) throw modelNotFound(id);
    return toApiModel(model);
  },
};
