import { Type } from "typebox";
import type { ErrorFormat, PublicError } from "../wire.ts";

/** Body of an error response of the wire; `details` has the service's own code, and fields such as `credits_available`. */
const GeminiError = Type.Object({
  error: Type.Object({
    code: Type.Integer({ description: "HTTP status." }),
    message: Type.String(),
    status: Type.String(),
    details: Type.Array(Type.Unknown()),
  }),
});

/** Names of google.rpc.Code, by HTTP status. */
const STATUSES: Record<number, string> = {
  401: "UNAUTHENTICATED",
  402: "FAILED_PRECONDITION",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  409: "ABORTED",
  429: "RESOURCE_EXHAUSTED",
  500: "INTERNAL",
  504: "DEADLINE_EXCEEDED",
};

/** Errors in the format of Google's APIs (AIP-193). */
export const geminiErrors: ErrorFormat = {
  schema: GeminiError,
  status: ({ status }) => status,
  body: (error, requestId) => errorOf(error, { request_id: requestId }),
};

/** Returns an error as a part of a stream, or with further facts as a whole body. */
export function errorOf(error: PublicError, further: Record<string, string> = {}) {
  const { status: code, code: reason, message, param, fields } = error;
  const facts = { ...(param !== null && { param }), ...further, ...fields };
  // The values of google.rpc.ErrorInfo are texts.
  const text = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
  const metadata = Object.fromEntries(Object.entries(facts).map(([name, value]) => [name, text(value)]));
  const info = { "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason, domain: "tollgate", metadata };
  const status = STATUSES[code] ?? (code < 500 ? "INVALID_ARGUMENT" : "UNAVAILABLE");
  return { error: { code, message, status, details: [info] } };
}
