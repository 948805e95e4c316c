import type { FastifyRequest } from "fastify";
import { Type } from "typebox";
import { messagesVersionIssue } from "../../api/messages/decode.ts";
import {
  MessagesModel,
  MessagesModelList,
  readModelPage,
  toMessagesModel,
  toMessagesModels,
} from "../../api/messages/models.ts";
import { Model, ModelList } from "../../api/model.ts";
import { type CatalogModel, isPrefix, toApiModel } from "../../catalog/model.ts";
import { mayUse, modelNotFound } from "../../gateway/plan.ts";
import { toApiIssue } from "../answer.ts";
import { principalOf } from "../authentication.ts";
import { namesMessagesVersion } from "../errors.ts";
import type { Endpoint } from "./endpoint.ts";

const FORMATS = "A request with the header `anthropic-version` gets the format of Anthropic's Models API.";

export const listModels: Endpoint = {
  method: "GET",
  path: "/v1/models",
  scope: "models:read",
  operationId: "listModels",
  summary: "List models",
  description: `Every model that the token may use, with its facts and its price. ${FORMATS}`,
  response: { description: "The models.", schema: Type.Union([ModelList, MessagesModelList]) },
  async handle({ gateway }, request): Promise<ModelList | MessagesModelList> {
    const principal = principalOf(request);
    const { catalog } = gateway;
    const aliases = [...catalog.aliases].filter(([alias]) => !isPrefix(alias));
    const named = [...catalog.list().map((model) => [model.id, model] as const), ...aliases];
    const models = named.filter(([, model]) => mayUse(principal, model));
    const listed = (all: typeof models) => all.map(([name, model]) => toApiModel(model, name));
    if (!isOfMessages(request)) return { object: "list", data: listed(models) };
    const page = readModelPage(request.query as Record<string, unknown>);
    if ("issue" in page) throw toApiIssue(page.issue);
    return toMessagesModels(listed(models.filter(([, model]) => chats(model))), page);
  },
};

export const retrieveModel: Endpoint = {
  method: "GET",
  path: "/v1/models/*",
  scope: "models:read",
  operationId: "retrieveModel",
  summary: "Retrieve a model",
  description: `One model with its facts and its price. The id may contain slashes, encoded or not. ${FORMATS}`,
  wildcard: { name: "model", description: "The model's id, or an alias." },
  response: { description: "The model.", schema: Type.Union([Model, MessagesModel]) },
  async handle({ gateway }, request): Promise<Model | MessagesModel> {
    const { "*": id } = request.params as { "*": string };
    request.modelName = id;
    const model = gateway.catalog.find(id);
    const isMessages = isOfMessages(request);
    if (model === undefined || !mayUse(principalOf(request), model)) throw modelNotFound(id);
    if (!isMessages) return toApiModel(model, id);
    if (!chats(model)) throw modelNotFound(id);
    return toMessagesModel(toApiModel(model, id));
  },
};

/** Tests whether a model belongs into the format of Anthropic's API, which has no embeddings. */
function chats({ capabilities }: CatalogModel): boolean {
  return capabilities.has("chat");
}

/** Tells whether a client speaks Anthropic's API. Throws invalid_value for an unknown version. */
function isOfMessages(request: FastifyRequest): boolean {
  const issue = messagesVersionIssue(request.headers);
  if (issue !== undefined) throw toApiIssue(issue);
  return namesMessagesVersion(request);
}
