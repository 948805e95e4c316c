import type { FastifyReply, FastifyRequest } from "fastify";
import { Type } from "typebox";
import { decodeCountTokens } from "../../api/messages/decode.ts";
import { messagesErrors } from "../../api/messages/errors.ts";
import { CountTokensRequest } from "../../api/messages/request.ts";
import { ResponsesRequest } from "../../api/responses/request.ts";
import type { DecodedCompletion } from "../../api/wire.ts";
import { ApiError } from "../../errors.ts";
import { planPrompt } from "../../gateway/kinds/completion.ts";
import { rateLimitHeaders } from "../../gateway/limits.ts";
import { wantedLimits } from "../../gateway/wanted-limits.ts";
import { modelIn } from "../access.ts";
import { abortOnClose, renamed } from "../answer.ts";
import { limitedOf, principalOf } from "../authentication.ts";
import { messagesHeaders } from "./create-message.ts";
import type { Endpoint, EndpointServices } from "./endpoint.ts";
import { decodeResponse } from "./responses.ts";

const InputTokens = Type.Integer({ minimum: 0 });

export const countMessageTokens: Endpoint = {
  method: "POST",
  path: "/v1/messages/count_tokens",
  scope: "chat.completions:write",
  operationId: "countMessageTokens",
  summary: "Count the tokens of a message",
  description: "Estimates the prompt tokens of a request of POST /v1/messages, without calling a model or charging.",
  headers: Type.Object(messagesHeaders),
  body: CountTokensRequest,
  response: { description: "The estimated tokens.", schema: Type.Object({ input_tokens: InputTokens }) },
  errors: messagesErrors,
  async handle(services, request, reply) {
    const decode = () => decodeCountTokens(request.body, request.headers);
    return { input_tokens: await estimateTokens(services, request, reply, decode) };
  },
};

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
    schema: Type.Object({ object: Type.Literal("response.input_tokens"), input_tokens: InputTokens }),
  },
  async handle(services, request, reply) {
    const decode = () => decodeResponse(request, services);
    return { object: "response.input_tokens", input_tokens: await estimateTokens(services, request, reply, decode) };
  },
};

/** Returns the estimated tokens of a prompt, within the limits of the caller. Rejects with the error that the client receives. */
export async function estimateTokens(
  { gateway }: EndpointServices,
  request: FastifyRequest,
  reply: FastifyReply,
  decode: () => DecodedCompletion | Promise<DecodedCompletion>,
): Promise<number> {
  request.modelName ??= modelIn(request.body);
  const decoded = await decode();
  const principal = principalOf(request);
  const { signal } = abortOnClose(reply);
  try {
    const { estimate, promptTexts } = planPrompt(gateway, { native: undefined, ...decoded, principal, signal });
    const { likely, likelyBesideText } = estimate;
    const { requestLimit, tokenLimit, leave } = await limitedOf(request).admit(
      wantedLimits(gateway, principal, likely),
    );
    reply.headers(rateLimitHeaders([requestLimit, tokenLimit]));
    const counter = gateway.tokenCounter.forPreviews(principal.organizationId, signal);
    const [counted] = (await counter.count([promptTexts()])) ?? [];
    const tokens = counted === undefined ? likely : counted + likelyBesideText;
    leave(tokens);
    return tokens;
  } catch (error) {
    throw error instanceof ApiError ? renamed(error, decoded.paramOf) : error;
  }
}
