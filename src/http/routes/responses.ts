import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyRequest } from "fastify";
import { type Static, Type } from "typebox";
import type { RequestDetail } from "../../api/admin/request.ts";
import type { CompletionUsage } from "../../api/chat/completion.ts";
import { decodeResponses, type Referable } from "../../api/responses/decode.ts";
import { type KeptItems, referencedIds } from "../../api/responses/references.ts";
import { ResponsesRequest } from "../../api/responses/request.ts";
import { ResponseEvent, ResponseObject } from "../../api/responses/response.ts";
import { answerIdOf, referencedAnswers, type StoredResponse, toStoredResponse } from "../../api/responses/stored.ts";
import { ApiError } from "../../errors.ts";
import { answerHandler, CHARGED_HEADERS } from "../answer.ts";
import { principalOf } from "../authentication.ts";
import { reserveBytes } from "../body.ts";
import type { Endpoint, EndpointServices } from "./endpoint.ts";

/** Responses that one request may refer to. */
const REFERENCES_MAX = 32;
/** Bytes of kept items that one request may refer to. */
const REFERRED_BYTES_MAX = 8 * 1024 * 1024;
/** Responses are stored shortly after they end, so a response that is not found is looked up again. */
const LOOKUPS_MAX = 3;
const LOOKUP_PAUSE_MS = 250;

export const createResponse: Endpoint = {
  method: "POST",
  path: "/v1/responses",
  scope: "chat.completions:write",
  operationId: "createResponse",
  summary: "Create a response",
  description:
    "Generates a response in the format of OpenAI's Responses API and charges the token's organization. `null` counts as an absent field; unknown fields are ignored and listed in the header `x-tollgate-ignored`.",
  headers: CHARGED_HEADERS,
  body: ResponsesRequest,
  response: { description: "The response, or its events.", schema: ResponseObject, eventSchema: ResponseEvent },
  handle: answerHandler(decodeResponse),
};

/** Reads the body of a request, with what it refers to. */
export async function decodeResponse(
  request: FastifyRequest,
  services: EndpointServices,
): Promise<ReturnType<typeof decodeResponses>> {
  return decodeResponses(request.body, await referable(services, request));
}

/** Looks up what a request refers to: among the kept items of its token, then among the stored conversations. */
async function referable(services: EndpointServices, request: FastifyRequest): Promise<Referable> {
  const ids = referencedIds(request.body);
  const kept = await keptItems(services, request, ids);
  if (!storesResponses(request)) return { kept };
  const others = referencedAnswers(ids.filter((id) => kept?.found.has(id) !== true)).slice(0, REFERENCES_MAX);
  const found = await Promise.all(others.map(async (id) => ({ id, own: await findOwn(services, request, id) })));
  return { kept, stored: new Map(found.flatMap(({ id, own }) => (own ? [[id, own.stored]] : []))) };
}

/** Returns the kept items with these ids; undefined if nothing is kept for the caller. Rejects with overloaded. */
async function keptItems(
  { responseItems }: EndpointServices,
  request: FastifyRequest,
  ids: readonly string[],
): Promise<KeptItems | undefined> {
  const { keepsResponses, organizationKind, organizationId, callerId } = principalOf(request);
  if (!keepsResponses || organizationKind === "playground" || !responseItems.isOn) return undefined;
  const owner = { organizationId, callerId };
  const found = await responseItems.find(owner, ids, (bytes) => {
    if (bytes > REFERRED_BYTES_MAX) {
      const message = `The items that the request refers to are too long: at most ${REFERRED_BYTES_MAX} bytes are allowed.`;
      throw new ApiError("body_too_large", message, { param: "input" });
    }
    reserveBytes(request, bytes);
  });
  return { found, keep: (answerId, items) => responseItems.keep(owner, answerId, items) };
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
  description:
    "A response of an organization that stores its conversations, for the token that created it and those that replaced it in rotations.",
  response: { description: "The response.", schema: ResponseObject },
  async handle(services, request): Promise<ResponseObject> {
    const id = answerIdIn(request);
    const { stored, detail } = await getOwn(services, request, id);
    const { ended_at: ended } = detail;
    const end = ended === null ? {} : { ended: Math.floor(Date.parse(ended) / 1000) };
    return toStoredResponse(id, stored, { usage: toUsage(detail), ...end });
  },
};

const DeletedResponse = Type.Object({
  id: Type.String(),
  object: Type.Literal("response"),
  deleted: Type.Literal(true),
});

export const deleteResponse: Endpoint = {
  ...ONE_RESPONSE,
  method: "DELETE",
  operationId: "deleteResponse",
  summary: "Delete a response",
  description:
    "Deletes what is stored of a response: its kept items, and its prompt and answer; its charge stays. For the token that created it and those that replaced it in rotations.",
  response: { description: "The deletion.", schema: DeletedResponse },
  async handle(services, request) {
    const id = answerIdIn(request);
    const { organizationId, callerId, tokenId } = principalOf(request);
    const isKept = await services.responseItems.removeAnswer({ organizationId, callerId }, `resp_${id}`);
    const own = await findOwn(services, request, id);
    if (own === undefined && isKept) return deleted(id);
    if (own === undefined) throw notFound();
    const { detail } = own;
    const actor = { kind: "member" as const, id: tokenId, address: request.ip, requestId: request.id };
    const subject = { organizationId, subjectId: detail.id };
    // Recorded first, so that no deletion is without a record.
    await services.audit.record(actor, { action: "conversations.remove", ...subject });
    if (!(await services.conversations.removeOne(organizationId, detail.id))) throw notFound();
    return deleted(id);
  },
};

function deleted(id: string): Static<typeof DeletedResponse> {
  return { id: `resp_${id}`, object: "response", deleted: true };
}

function answerIdIn({ params }: FastifyRequest): string {
  const id = answerIdOf((params as { "*": string })["*"]);
  if (id === undefined) throw notFound();
  return id;
}

function notFound(): ApiError {
  return new ApiError("not_found", "No response with this id is stored.", { param: "response_id" });
}

interface OwnResponse {
  stored: StoredResponse;
  detail: RequestDetail;
}

/** Returns a response like `findOwn`. Throws the same not_found for one of another token as for one that does not exist. */
async function getOwn(services: EndpointServices, request: FastifyRequest, answerId: string): Promise<OwnResponse> {
  const own = await findOwn(services, request, answerId);
  if (own === undefined) throw notFound();
  return own;
}

/**
 * Finds a stored response that the caller's token, or one that it replaced in rotations, has created. Each lookup takes at
 * least its pause, so that the time of the answer does not tell whether a response of another token exists.
 */
async function findOwn(
  services: EndpointServices,
  request: FastifyRequest,
  answerId: string,
): Promise<OwnResponse | undefined> {
  if (!storesResponses(request)) return undefined;
  for (let lookup = 1; lookup <= LOOKUPS_MAX; lookup += 1) {
    const pause = sleep(LOOKUP_PAUSE_MS);
    const own = await lookUpOwn(services, request, answerId);
    if (own !== undefined) return own;
    await pause;
  }
  return undefined;
}

async function lookUpOwn(
  { conversations, requests, directory }: EndpointServices,
  request: FastifyRequest,
  answerId: string,
): Promise<OwnResponse | undefined> {
  const { organizationId, tokenId } = principalOf(request);
  const id = toUuid(answerId);
  const stored = await conversations.find(organizationId, id);
  const detail = stored && (await requests.find(id));
  if (detail === undefined || stored === undefined) return undefined;
  let owner: string | null | undefined = detail.token_id;
  while (typeof owner === "string" && owner !== tokenId) owner = (await directory.token(owner))?.successor_id;
  return owner === tokenId ? { stored, detail } : undefined;
}

/** False in the playground organization, whose tokens belong to people who do not know each other. */
function storesResponses(request: FastifyRequest): boolean {
  const { keepsConversations, organizationKind } = principalOf(request);
  return keepsConversations && organizationKind !== "playground";
}

function toUuid(digits: string): string {
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function toUsage({ tokens, charged }: RequestDetail): CompletionUsage {
  const prompt = tokens.input + tokens.cached_input + tokens.cache_write;
  const completion = tokens.output + tokens.reasoning;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: tokens.cached_input },
    completion_tokens_details: { reasoning_tokens: tokens.reasoning },
    cost: charged,
  };
}
