import type { FastifyRequest } from "fastify";
import { Type } from "typebox";
import { GeminiModel, GeminiModelList, toGeminiModel, toGeminiModels } from "../../api/gemini/models.ts";
import { messagesVersionIssue } from "../../api/messages/decode.ts";
import {
  MessagesModel,
  MessagesModelList,
  readModelPage,
  toMessagesModel,
  toMessagesModels,
} from "../../api/messages/models.ts";
import { Model, ModelList } from "../../api/model.ts";
import { refuseIf } from "../../api/validation.ts";
import { type CatalogModel, isPrefix, toApiModel } from "../../catalog/model.ts";
import type { Gateway } from "../../gateway/gateway.ts";
import { catalogFor, mayUse, modelNotFound } from "../../gateway/plan.ts";
import { principalOf } from "../authentication.ts";
import { isOfGemini, namesMessagesVersion } from "../errors.ts";
import type { Endpoint } from "./endpoint.ts";

const FORMATS =
  "A request with the header `anthropic-version` gets the format of Anthropic's Models API, one with `x-goog-api-key` that of Gemini's API, in pages by `pageSize` and `pageToken`.";

export const listModels: Endpoint = {
  method: "GET",
  path: "/v1/models",
  scope: "models:read",
  operationId: "listModels",
  summary: "List models",
  description: `Every model that the token may use, with its facts and its price. ${FORMATS}`,
  response: { description: "The models.", schema: Type.Union([ModelList, MessagesModelList, GeminiModelList]) },
  async handle({ gateway }, request): Promise<ModelList | MessagesModelList | GeminiModelList> {
    if (isOfGemini(request)) {
      return toGeminiModels(modelsFor(gateway, request, chats), request.query as Record<string, unknown>);
    }
    if (!isOfMessages(request)) return { object: "list", data: modelsFor(gateway, request, () => true) };
    const page = readModelPage(request.query as Record<string, unknown>);
    return toMessagesModels(modelsFor(gateway, request, chats), page);
  },
};

function modelsFor(gateway: Gateway, request: FastifyRequest, belongs: (model: CatalogModel) => boolean): Model[] {
  const principal = principalOf(request);
  const catalog = catalogFor(gateway.catalog, principal);
  const aliases = [...catalog.aliases].filter(([alias]) => !isPrefix(alias));
  const named = [...catalog.list().map((model) => [model.id, model] as const), ...aliases];
  const models = named.filter(([, model]) => mayUse(principal, model) && belongs(model));
  return models.map(([name, model]) => toApiModel(model, name));
}

export const retrieveModel: Endpoint = {
  method: "GET",
  path: "/v1/models/*",
  scope: "models:read",
  operationId: "retrieveModel",
  summary: "Retrieve a model",
  description: `One model with its facts and its price. The id may contain slashes, encoded or not. ${FORMATS}`,
  wildcard: { name: "model", description: "The model's id, or an alias." },
  response: { description: "The model.", schema: Type.Union([Model, MessagesModel, GeminiModel]) },
  async handle({ gateway }, request): Promise<Model | MessagesModel | GeminiModel> {
    if (isOfGemini(request)) return toGeminiModel(modelFor(gateway, request, chats));
    return isOfMessages(request)
      ? toMessagesModel(modelFor(gateway, request, chats))
      : modelFor(gateway, request, () => true);
  },
};

/** Returns the model of a path. Throws model_not_found if the caller may not use it, or it does not belong into a format. */
function modelFor(gateway: Gateway, request: FastifyRequest, belongs: (model: CatalogModel) => boolean): Model {
  const { "*": id } = request.params as { "*": string };
  request.modelName = id;
  const principal = principalOf(request);
  const model = catalogFor(gateway.catalog, principal).find(id);
  if (model === undefined || !mayUse(principal, model) || !belongs(model)) throw modelNotFound(id);
  return toApiModel(model, id);
}

/** Tests whether a model belongs into the formats of Anthropic's and Gemini's API, which here have no embeddings. */
function chats({ capabilities }: CatalogModel): boolean {
  return capabilities.has("chat");
}

/** Tells whether a client speaks Anthropic's API. Throws invalid_value for an unknown version. */
function isOfMessages(request: FastifyRequest): boolean {
  refuseIf(messagesVersionIssue(request.headers));
  return namesMessagesVersion(request);
}
