import { Type } from "typebox";
import { decodeMessages } from "../../api/messages/decode.ts";
import { messagesErrors } from "../../api/messages/errors.ts";
import { MessageDocument, MessageEvent } from "../../api/messages/message.ts";
import { MESSAGES_VERSIONS, MessagesRequest } from "../../api/messages/request.ts";
import { answerHandler, CHARGED_HEADERS } from "../answer.ts";
import type { Endpoint } from "./endpoint.ts";

/** Documentation of the headers of the wire. */
export const messagesHeaders = {
  "anthropic-version": Type.Optional(Type.Enum([...MESSAGES_VERSIONS])),
  "anthropic-beta": Type.Optional(
    Type.String({
      description:
        "Passed on to providers that speak this wire, except for betas that change the price of a request; otherwise listed in x-tollgate-ignored.",
    }),
  ),
};

export const createMessage: Endpoint = {
  method: "POST",
  path: "/v1/messages",
  scope: "chat.completions:write",
  operationId: "createMessage",
  summary: "Create a message",
  description:
    "Generates a reply in the format of Anthropic's Messages API and charges the token's organization. `null` counts as an absent field; unknown fields are ignored.",
  headers: Type.Object({ ...messagesHeaders, ...CHARGED_HEADERS.properties }),
  body: MessagesRequest,
  response: { description: "The message, or its events.", schema: MessageDocument, eventSchema: MessageEvent },
  errors: messagesErrors,
  handle: answerHandler(({ body, headers }) => decodeMessages(body, headers)),
};
