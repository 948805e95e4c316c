import { decodeResponses } from "../../api/responses/decode.ts";
import { ResponsesRequest } from "../../api/responses/request.ts";
import { ResponseEvent, ResponseObject } from "../../api/responses/response.ts";
import { COMPLETION_HEADERS, completionHandler } from "../completion.ts";
import type { Endpoint } from "./endpoint.ts";

export const createResponse: Endpoint = {
  method: "POST",
  path: "/v1/responses",
  scope: "chat.completions:write",
  operationId: "createResponse",
  summary: "Create a response",
  description:
    "Generates a response in the format of OpenAI's Responses API and charges the token's organization. `null` counts as an absent field; unknown fields are ignored and listed in the header `x-tollgate-ignored`.",
  headers: COMPLETION_HEADERS,
  body: ResponsesRequest,
  response: { description: "The response, or its events.", schema: ResponseObject, eventSchema: ResponseEvent },
  handle: completionHandler(({ body }) => decodeResponses(body)),
};
