import type { FastifyRequest } from "fastify";
import { Type } from "typebox";
import { decodeGeminiCount, decodeGenerateContent } from "../../api/gemini/decode.ts";
import { GenerateContentResponse } from "../../api/gemini/encode.ts";
import { geminiErrors } from "../../api/gemini/errors.ts";
import { GenerateContentRequest } from "../../api/gemini/request.ts";
import { ApiError } from "../../errors.ts";
import { answered, countHandler } from "../answer.ts";
import type { Endpoint } from "./endpoint.ts";
import { listModels, retrieveModel } from "./models.ts";

const METHODS = ["generateContent", "streamGenerateContent", "countTokens"];

const generating = answered({
  path: "/v1beta/models/*",
  operationId: "createGeminiContent",
  summary: "Generate content, or count the tokens of a prompt",
  description:
    "The methods of Gemini's API. `generateContent` and `streamGenerateContent` generate a reply and charge the token's organization; a stream is server-sent events with `?alt=sse`, one JSON list without. `countTokens` estimates the tokens of a prompt without a charge. `null` counts as an absent field; unknown fields are ignored.",
  body: GenerateContentRequest,
  wildcard: { name: "model", description: `The model's id, a colon, and the method: ${METHODS.join(", ")}.` },
  response: {
    description: "The reply, its parts, or the estimated tokens.",
    schema: Type.Union([GenerateContentResponse, Type.Object({ totalTokens: Type.Integer({ minimum: 0 }) })]),
    eventSchema: GenerateContentResponse,
  },
  errors: geminiErrors,
  decode: (request) => {
    const { model, method } = callOf(request);
    const { alt } = request.query as { alt?: unknown };
    const isStreamed = method === "streamGenerateContent";
    return decodeGenerateContent(request.body, { model, isStreamed, isEvents: alt === "sse" });
  },
});

const countTokens = countHandler(
  (request) => decodeGeminiCount(request.body, callOf(request).model),
  (totalTokens) => ({ totalTokens }),
);

export const createGeminiContent: Endpoint = {
  ...generating,
  handle(services, request, reply) {
    const { model, method } = callOf(request);
    request.modelName = model;
    return (method === "countTokens" ? countTokens : generating.handle)(services, request, reply);
  },
};

/** Returns the model and the method of a path. Throws not_found for an unknown method. */
function callOf({ params }: FastifyRequest): { model: string; method: string } {
  const { "*": call } = params as { "*": string };
  const colon = call.lastIndexOf(":");
  const method = call.slice(colon + 1);
  if (colon > 0 && METHODS.includes(method)) return { model: call.slice(0, colon), method };
  throw new ApiError("not_found", `Route not found. Methods of a model are: ${METHODS.join(", ")}.`);
}

/** The same under the path that Google's newer packages use. */
export const createGeminiContentV1: Endpoint = {
  ...createGeminiContent,
  path: "/v1/models/*",
  operationId: "createGeminiContentV1",
};

export const listGeminiModels: Endpoint = {
  ...listModels,
  path: "/v1beta/models",
  operationId: "listGeminiModels",
  summary: "List models in the format of Gemini's API",
  errors: geminiErrors,
};

export const retrieveGeminiModel: Endpoint = {
  ...retrieveModel,
  path: "/v1beta/models/*",
  operationId: "retrieveGeminiModel",
  summary: "Retrieve a model in the format of Gemini's API",
  errors: geminiErrors,
};
