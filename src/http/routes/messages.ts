import { Type } from "typebox";
import { decodeCountTokens, decodeMessages } from "../../api/messages/decode.ts";
import { messagesErrors } from "../../api/messages/errors.ts";
import { MessageDocument, MessageEvent } from "../../api/messages/message.ts";
import { CountTokensRequest, MESSAGES_VERSIONS, MessagesRequest } from "../../api/messages/request.ts";
import { OptionalKeys, TokenCount } from "../../api/schema.ts";
import { answered, countHandler } from "../answer.ts";
import type { Endpoint } from "./endpoint.ts";

const headers = OptionalKeys({
  "anthropic-version": Type.Enum([...MESSAGES_VERSIONS]),
  "anthropic-beta": Type.String({
    description:
      "Passed on to providers that speak this wire, except for betas that change the price of a request; otherwise listed in x-tollgate-ignored.",
  }),
});

export const createMessage = answered({
  path: "/v1/messages",
  operationId: "createMessage",
  summary: "Create a message",
  description:
    "Generates a reply in the format of Anthropic's Messages API and charges the token's organization. `null` counts as an absent field; unknown fields are ignored.",
  headers,
  body: MessagesRequest,
  response: { description: "The message, or its events.", schema: MessageDocument, eventSchema: MessageEvent },
  errors: messagesErrors,
  decode: ({ body, headers }) => decodeMessages(body, headers),
});

export const countMessageTokens: Endpoint = {
  method: "POST",
  path: "/v1/messages/count_tokens",
  scope: "chat.completions:write",
  operationId: "countMessageTokens",
  summary: "Count the tokens of a message",
  description: "Estimates the prompt tokens of a request of POST /v1/messages, without calling a model or charging.",
  headers: Type.Object(headers),
  body: CountTokensRequest,
  response: { description: "The estimated tokens.", schema: Type.Object({ input_tokens: TokenCount }) },
  errors: messagesErrors,
  handle: countHandler(
    ({ body, headers }) => decodeCountTokens(body, headers),
    (tokens) => ({ input_tokens: tokens }),
  ),
};
