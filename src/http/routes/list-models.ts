import { ModelList } from "../../api/model.ts";
import { toContractModel } from "../../catalog/to-contract.ts";
import { mayUse } from "../../gateway/plan.ts";
import { principalOf } from "../principal-of.ts";
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
    return { object: "list", data: models.map(toContractModel) };
  },
};
