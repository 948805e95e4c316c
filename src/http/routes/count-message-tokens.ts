import { Type } from "typebox";
import { decodeCountTokens } from "../../api/messages/decode.ts";
import { messagesErrors } from "../../api/messages/errors.ts";
import { CountTokensRequest } from "../../api/messages/request.ts";
import { estimatePrompt, promptTexts } from "../../credits/estimate.ts";
import { ApiError } from "../../errors.ts";
import { rateLimitHeaders } from "../../gateway/limits.ts";
import { planFor } from "../../gateway/plan.ts";
import { modelIn } from "../access.ts";
import { callerOf } from "../authentication.ts";
import { renamed, toApiIssue } from "../completion.ts";
import { messagesHeaders, messagesHeadersOf } from "./create-message.ts";
import type { Endpoint } from "./endpoint.ts";

const MessageTokensCount = Type.Object({ input_tokens: Type.Integer({ minimum: 0 }) });
const output = { param: "max_tokens", tokens: undefined, isLimitedBySetting: false };

export const countMessageTokens: Endpoint = {
  method: "POST",
  path: "/v1/messages/count_tokens",
  scope: "chat.completions:write",
  operationId: "countMessageTokens",
  summary: "Count the tokens of a message",
  description: "Estimates the prompt tokens of a request of POST /v1/messages, without calling a model or charging.",
  headers: Type.Object(messagesHeaders),
  body: CountTokensRequest,
  response: { description: "The estimated tokens.", schema: MessageTokensCount },
  errors: messagesErrors,
  async handle({ gateway }, request, reply) {
    request.modelName = modelIn(request.body);
    const decoded = decodeCountTokens(request.body, messagesHeadersOf(request));
    if ("issue" in decoded) throw toApiIssue(decoded.issue);
    const { principal, limited } = callerOf(request);
    reply.headers(rateLimitHeaders([await limited.counted()]));
    try {
      const plan = planFor(gateway, { ...decoded, principal, output });
      const { likely, likelyBesideText } = estimatePrompt(plan.request, plan.model);
      const counts = await gateway.tokenCounter.count([promptTexts(plan.request)]);
      return { input_tokens: counts?.[0] === undefined ? likely : counts[0] + likelyBesideText };
    } catch (error) {
      throw error instanceof ApiError ? renamed(error, decoded.paramOf) : error;
    }
  },
};
