import { decodeTextCompletion, TextCompletion, TextCompletionRequest } from "../../api/chat/text-completion.ts";
import { answerHandler, CHARGED_HEADERS } from "../answer.ts";
import type { Endpoint } from "./endpoint.ts";

export const createTextCompletion: Endpoint = {
  method: "POST",
  path: "/v1/completions",
  scope: "chat.completions:write",
  operationId: "createTextCompletion",
  summary: "Complete a text",
  description:
    "Continues a text, in OpenAI's form from before chat completions, and charges the token's organization. Providers that serve it receive the prompt as it is; others receive it as a message of a chat completion.",
  headers: CHARGED_HEADERS,
  body: TextCompletionRequest,
  response: { description: "The completion, or its events.", schema: TextCompletion, eventSchema: TextCompletion },
  handle: answerHandler(({ body }) => decodeTextCompletion(body)),
};
