import { decodeEmbedding } from "../../api/embeddings/decode.ts";
import { EmbeddingList, EmbeddingRequest } from "../../api/embeddings/request.ts";
import { answerHandler, CHARGED_HEADERS } from "../answer.ts";
import type { Endpoint } from "./endpoint.ts";

export const createEmbedding: Endpoint = {
  method: "POST",
  path: "/v1/embeddings",
  scope: "chat.completions:write",
  operationId: "createEmbedding",
  summary: "Create embeddings",
  description:
    "Turns texts into vectors and charges the token's organization for their tokens. `null` counts as an absent field; unknown fields are ignored and named in `x-tollgate-ignored`.",
  headers: CHARGED_HEADERS,
  body: EmbeddingRequest,
  response: { description: "The embeddings, in the order of the inputs.", schema: EmbeddingList },
  handle: answerHandler(({ body }) => decodeEmbedding(body)),
};
