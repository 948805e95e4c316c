import { Type } from "typebox";
import { Typed } from "../schema.ts";
import type { ErrorFormat, PublicError } from "../wire.ts";

/** Body of an error response of the wire; `details` has the service's own code, and fields such as `credits_available`. */
const MessagesError = Typed("error", {
  error: Type.Object({
    type: Type.String(),
    message: Type.String(),
    details: Type.Object({
      error_code: Type.String(),
      param: Type.Union([Type.String(), Type.Null()]),
      credits_available: Type.Optional(Type.Number()),
      credits_required: Type.Optional(Type.Number()),
      affordable_max_tokens: Type.Optional(Type.Integer()),
    }),
  }),
  request_id: Type.String(),
});

const TYPES: Record<number, string> = {
  401: "authentication_error",
  402: "billing_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  529: "overloaded_error",
};
/** Makes the SDK's tool runner repeat its request with the whole conversation instead of a thread. */
const THREAD_CODE = "thread_unsupported_request";

/** Errors in the format of Anthropic's API (Anthropic's documentation, "Errors"). */
export const messagesErrors: ErrorFormat = {
  schema: MessagesError,
  status: ({ status, code }) => (code === "overloaded" ? 529 : status),
  body: (error, requestId) => ({ ...errorEvent(error), request_id: requestId }),
};

/** Returns the data of an `error` event. */
export function errorEvent(error: PublicError) {
  const { code, message, param, fields } = error;
  const status = messagesErrors.status(error);
  const type = TYPES[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
  const errorCode = param === "thread" ? THREAD_CODE : code;
  return { type: "error", error: { type, message, details: { error_code: errorCode, param, ...fields } } };
}
