import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyRequest } from "fastify";
import { Type } from "typebox";
import { decodeResponses } from "../../api/responses/decode.ts";
import { type KeptItems, keptResponse, referencedIds } from "../../api/responses/references.ts";
import { ResponsesRequest } from "../../api/responses/request.ts";
import { ResponseEvent, ResponseObject } from "../../api/responses/response.ts";
import { TokenCount } from "../../api/schema.ts";
import type { DecodedCompletion } from "../../api/wire.ts";
import { ApiError } from "../../errors.ts";
import { answered, countHandler } from "../answer.ts";
import { principalOf } from "../authentication.ts";
import { reserveBytes } from "../body.ts";
import type { Endpoint, EndpointServices } from "./endpoint.ts";

const REFERRED_BYTES_MAX = 8 * 1024 * 1024;
/** A conversation is stored shortly after its response, so one that is not found is looked up again. */
const LOOKUPS_MAX = 3;
const LOOKUP_PAUSE_MS = 250;

export const createResponse = answered({
  path: "/v1/responses",
  operationId: "createResponse",
  summary: "Create a response",
  description:
    "Generates a response in the format of OpenAI's Responses API and charges the token's organization. `null` counts as an absent field; unknown fields are ignored and listed in the header `x-tollgate-ignored`.",
  body: ResponsesRequest,
  response: { description: "The response, or its events.", schema: ResponseObject, eventSchema: ResponseEvent },
  decode: decodeResponse,
});

export const countResponseTokens: Endpoint = {
  method: "POST",
  path: "/v1/responses/input_tokens",
  scope: "chat.completions:write",
  operationId: "countResponseTokens",
  summary: "Count the tokens of a response's input",
  description: "Estimates the input tokens of a request of POST /v1/responses, without calling a model or charging.",
  body: ResponsesRequest,
  response: {
    description: "The estimated tokens.",
    schema: Type.Object({ object: Type.Literal("response.input_tokens"), input_tokens: TokenCount }),
  },
  handle: countHandler(decodeResponse, (tokens) => ({ object: "response.input_tokens", input_tokens: tokens })),
};

async function decodeResponse(request: FastifyRequest, services: EndpointServices): Promise<DecodedCompletion> {
  return decodeResponses(request.body, await keptItems(services, request, referencedIds(request.body)));
}

/** Returns the kept items with these ids; undefined if nothing is kept for the caller. Rejects with overloaded. */
async function keptItems(
  { gateway, responseItems }: EndpointServices,
  request: FastifyRequest,
  ids: readonly string[],
): Promise<KeptItems | undefined> {
  const { keepsResponses, keepsConversations, organizationKind, organizationId, callerId } = principalOf(request);
  // The tokens of the playground belong to people who do not know each other.
  if (!keepsResponses || organizationKind === "playground" || !responseItems.isOn()) return undefined;
  const owner = { organizationId, callerId };
  const found = await responseItems.find({ ...owner, keepsConversations }, ids, (bytes) => {
    if (bytes > REFERRED_BYTES_MAX) {
      const message = `The items that the request refers to are too long: at most ${REFERRED_BYTES_MAX} bytes are allowed.`;
      throw new ApiError("body_too_large", message, { param: "input" });
    }
    reserveBytes(request, bytes);
  });
  const { isLarge } = request.bodyReservation ?? {};
  const turn = async () => {
    if (isLarge) await gateway.longTasks.run(organizationId, () => undefined);
  };
  if (found.size > 0) await turn();
  return { found, keep: (answerId, items) => turn().then(() => responseItems.keep(owner, answerId, items())) };
}

const ONE_RESPONSE = {
  path: "/v1/responses/*",
  scope: "chat.completions:write",
  wildcard: { name: "response_id", description: "The response's id." },
} as const;

export const retrieveResponse: Endpoint = {
  ...ONE_RESPONSE,
  method: "GET",
  operationId: "retrieveResponse",
  summary: "Retrieve a response",
  description: "A kept response, for the token that created it and those that replaced it in rotations.",
  response: { description: "The response.", schema: ResponseObject },
  async handle(services, request): Promise<ResponseObject> {
    const { id } = responseIdIn(request);
    if ((request.query as { stream?: unknown }).stream === "true") {
      const message = "Invalid 'stream': a stored response is not streamed. Leave it out.";
      throw new ApiError("unsupported_value", message, { param: "stream" });
    }
    const kept = keptResponse((await keptItems(services, request, [id]))?.found.get(id));
    if (kept === undefined) throw notFound();
    return kept.response;
  },
};

export const deleteResponse: Endpoint = {
  ...ONE_RESPONSE,
  method: "DELETE",
  operationId: "deleteResponse",
  summary: "Delete a response",
  description:
    "Deletes a kept response with its items, and its stored prompt and answer; its charge stays. For the token that created it and those that replaced it in rotations.",
  response: {
    description: "The deletion.",
    schema: Type.Object({ id: Type.String(), object: Type.Literal("response"), deleted: Type.Literal(true) }),
  },
  async handle(services, request) {
    const { id, requestId } = responseIdIn(request);
    const { organizationId, callerId, keepsConversations } = principalOf(request);
    const owner = { organizationId, callerId };
    if (!(await services.responseItems.hasAnswer(owner, id))) throw notFound();
    // Its items last, because without them the deletion could not be repeated after a failure.
    if (keepsConversations) await removeConversation(services, request, requestId);
    await services.responseItems.removeAnswer(owner, id);
    return { id, object: "response", deleted: true };
  },
};

async function removeConversation(
  { conversations, audit }: EndpointServices,
  request: FastifyRequest,
  requestId: string,
): Promise<void> {
  const { organizationId, tokenId } = principalOf(request);
  for (let lookup = 1; (await conversations.find(organizationId, requestId)) === undefined; lookup += 1) {
    if (lookup === LOOKUPS_MAX) return;
    await sleep(LOOKUP_PAUSE_MS);
  }
  const actor = { kind: "member" as const, id: tokenId, name: null, address: request.ip, requestId: request.id };
  // Recorded first, so that no deletion is without a record.
  await audit.record(actor, { action: "conversations.remove", organizationId, subjectId: requestId });
  await conversations.removeOne(organizationId, requestId);
}

/** Returns the id of the response that a path names, and that of its request. Throws not_found. */
function responseIdIn({ params }: FastifyRequest): { id: string; requestId: string } {
  const { "*": id } = params as { "*": string };
  const absent = unserved(`/v1/responses/${id}`);
  if (absent !== undefined) throw absent;
  const parts = /^resp_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/.exec(id)?.slice(1);
  if (parts === undefined) throw notFound();
  return { id, requestId: parts.join("-") };
}

/** Returns the error of a path of an operation that OpenAI's API has and this service has not; undefined for all others. */
export function unserved(path: string): ApiError | undefined {
  const [, name] = /^\/v1\/responses\/(?:[^/]+\/)?(cancel|compact|input_items)$/.exec(path) ?? [];
  if (name === undefined) return undefined;
  return new ApiError("not_found", `Route not found. The operation '${name}' of responses is not offered.`);
}

function notFound(): ApiError {
  return new ApiError("not_found", "No response with this id is stored.", { param: "response_id" });
}
