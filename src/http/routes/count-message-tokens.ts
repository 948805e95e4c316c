import { Type } from "typebox";
import { decodeCountTokens } from "../../api/messages/decode.ts";
import { messagesErrors } from "../../api/messages/errors.ts";
import { CountTokensRequest } from "../../api/messages/request.ts";
import { ApiError } from "../../errors.ts";
import { planPrompt } from "../../gateway/kinds/completion.ts";
import { rateLimitHeaders } from "../../gateway/limits.ts";
import { callerLimits } from "../../gateway/wanted-limits.ts";
import { modelIn } from "../access.ts";
import { abortOnClose, renamed, toApiIssue } from "../answer.ts";
import { limitedOf, principalOf } from "../authentication.ts";
import { messagesHeaders, messagesHeadersOf } from "./create-message.ts";
import type { Endpoint } from "./endpoint.ts";

const MessageTokensCount = Type.Object({ input_tokens: Type.Integer({ minimum: 0 }) });

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
    const principal = principalOf(request);
    const { signal } = abortOnClose(reply);
    try {
      const { estimate, promptTexts } = planPrompt(gateway, { native: undefined, ...decoded, principal, signal });
      const { likely, likelyBesideText } = estimate;
      const { requestLimit, tokenLimit, leave } = await limitedOf(request).admit(
        callerLimits(gateway, principal, likely),
      );
      reply.headers(rateLimitHeaders([requestLimit, tokenLimit]));
      const counter = gateway.tokenCounter.forPreviews(principal.organizationId, signal);
      const [counted] = (await counter.count([promptTexts()])) ?? [];
      const tokens = counted === undefined ? likely : counted + likelyBesideText;
      leave(tokens);
      return { input_tokens: tokens };
    } catch (error) {
      throw error instanceof ApiError ? renamed(error, decoded.paramOf) : error;
    }
  },
};
