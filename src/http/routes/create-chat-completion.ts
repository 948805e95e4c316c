import { ChatCompletion, ChatCompletionChunk } from "../../api/chat/completion.ts";
import { decodeChatCompletion } from "../../api/chat/decode.ts";
import { SentRequest } from "../../api/chat/request.ts";
import { decodeResponsesBody, isResponsesBody } from "../../api/chat/responses-body.ts";
import { answerHandler, CHARGED_HEADERS } from "../answer.ts";
import type { Endpoint } from "./endpoint.ts";

export const createChatCompletion: Endpoint = {
  method: "POST",
  path: "/v1/chat/completions",
  scope: "chat.completions:write",
  operationId: "createChatCompletion",
  summary: "Create a chat completion",
  description:
    "Generates a reply to a conversation and charges the token's organization. `null` counts as an absent field; unknown fields are ignored.",
  headers: CHARGED_HEADERS,
  body: SentRequest,
  response: { description: "The completion, or its events.", schema: ChatCompletion, eventSchema: ChatCompletionChunk },
  handle: answerHandler(({ body }, { completions }) =>
    isResponsesBody(body) ? decodeResponsesBody(body, completions) : decodeChatCompletion(body, completions),
  ),
};
