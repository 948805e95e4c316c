import { decodeEmbedding } from "../../api/embeddings/decode.ts";
import { EmbeddingList, EmbeddingRequest } from "../../api/embeddings/request.ts";
import { embed } from "../../gateway/embed.ts";
import { modelIn, onSettledOf } from "../access.ts";
import { callerOf } from "../authentication.ts";
import { abortOnClose, COMPLETION_HEADERS, maxCostOf, toApiIssue } from "../completion.ts";
import { idempotencyOf } from "../idempotency.ts";
import type { Endpoint } from "./endpoint.ts";

export const createEmbedding: Endpoint = {
  method: "POST",
  path: "/v1/embeddings",
  scope: "chat.completions:write",
  operationId: "createEmbedding",
  summary: "Create embeddings",
  description:
    "Turns texts into vectors and charges the token's organization for their tokens. `null` counts as an absent field; unknown fields are ignored and named in `x-tollgate-ignored`.",
  headers: COMPLETION_HEADERS,
  body: EmbeddingRequest,
  response: { description: "The embeddings, in the order of the inputs.", schema: EmbeddingList },
  async handle({ gateway, running }, request, reply) {
    request.modelName = modelIn(request.body);
    const decoded = decodeEmbedding(request.body);
    if ("issue" in decoded) throw toApiIssue(decoded.issue);
    const onHeld = () => {
      request.isHeld = true;
    };
    const idempotency = idempotencyOf(request, decoded.request);
    const facts = { ...decoded, maxCost: maxCostOf(request), requestId: request.id, idempotency };
    const call = {
      onHeld,
      onSettled: onSettledOf(request),
      ...callerOf(request),
      ...facts,
      ...abortOnClose(reply, running),
    };
    const response = await running.follow(embed(gateway, call));
    if (response === undefined) return reply.hijack();
    return reply.headers(response.headers).type("application/json; charset=utf-8").send(response.body);
  },
};
