/**
 * The catalog of errors: everything that an API caller can be told went wrong, by code. `docs/errors.md` lists the same
 * rows, and a test compares the two both ways. Public messages stand here or come from whoever raises the error; what
 * happened inside travels as `cause`, to the log only.
 */
interface ErrorRow {
  status: number;
  type: string;
  /** Whether the same request may succeed later without a change. */
  retryable: boolean;
  message: string;
}

const invalid = (status: number, message: string, retryable = false): ErrorRow => ({
  status,
  type: "invalid_request_error",
  retryable,
  message,
});
const authentication = (message: string): ErrorRow => ({
  status: 401,
  type: "authentication_error",
  retryable: false,
  message,
});
const permission = (message: string): ErrorRow => ({
  status: 403,
  type: "permission_error",
  retryable: false,
  message,
});
const rateLimit = (message: string): ErrorRow => ({ status: 429, type: "rate_limit_error", retryable: true, message });
const server = (status: number, message: string): ErrorRow => ({
  status,
  type: "server_error",
  retryable: true,
  message,
});

export const errorCatalog = {
  invalid_json: invalid(400, "The request body is not valid JSON."),
  missing_required_parameter: invalid(400, "A required parameter is missing."),
  unknown_parameter: invalid(400, "A parameter is not known here."),
  invalid_type: invalid(400, "A parameter has the wrong type."),
  invalid_value: invalid(400, "A parameter has a value that is not allowed."),
  unsupported_value: invalid(400, "The model does not support this value."),
  decimal_above_max_value: invalid(400, "A number is above its maximum."),
  decimal_below_min_value: invalid(400, "A number is below its minimum."),
  context_length_exceeded: invalid(400, "The prompt does not fit the model's context window."),
  content_filter: invalid(400, "The model's provider refused the prompt by its content policy."),
  upstream_rejected: invalid(400, "The model's provider rejected the request."),
  missing_token: authentication("No access token was sent. Send the header `Authorization: Bearer <token>`."),
  invalid_token: authentication("The access token is not valid."),
  expired_token: authentication("The access token has expired."),
  insufficient_credits: {
    status: 402,
    type: "insufficient_quota",
    retryable: false,
    message: "The organization's credits do not cover this request.",
  },
  insufficient_scope: permission("The access token lacks the scope that this operation needs."),
  model_not_allowed: permission("The access token may not use this model."),
  organization_paused: permission("The organization is paused: it takes no new requests."),
  insufficient_role: permission("This is for the operator alone."),
  csrf_check_failed: permission("The request did not come from the console's own pages."),
  usage_not_available_for_playground: permission("Usage is not available for the playground organization."),
  model_not_found: invalid(404, "The model does not exist or you do not have access to it."),
  not_found: invalid(404, "Route not found."),
  method_not_allowed: invalid(405, "This method is not allowed here."),
  already_rotated: invalid(409, "The token was already rotated."),
  token_ended: invalid(409, "The token was revoked or has expired."),
  reference_mismatch: invalid(409, "The reference was used with other terms."),
  idempotency_in_progress: invalid(409, "A request with this Idempotency-Key is still running.", true),
  idempotency_interrupted: invalid(
    409,
    "The request with this Idempotency-Key was cut short; there is no answer to give again. Use a new key.",
  ),
  body_too_large: invalid(413, "The request body is too large."),
  unsupported_media_type: invalid(415, "Send the request body as `Content-Type: application/json`."),
  idempotency_mismatch: invalid(422, "This Idempotency-Key was used for a request with another body."),
  rate_limit_exceeded: rateLimit("A rate limit was reached."),
  credits_held: rateLimit("The organization's credits are held by requests that are still running."),
  internal_error: server(500, "Something went wrong on our side."),
  upstream_error: server(502, "The model's provider failed to answer."),
  upstream_unavailable: server(503, "The model's provider cannot be reached."),
  overloaded: server(503, "The model's provider is overloaded."),
  store_unavailable: server(503, "The service cannot reach its store."),
  upstream_timeout: server(504, "The model's provider did not answer in time."),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof errorCatalog;

export interface ApiErrorOptions {
  /** The path of the field at fault, as `messages[0].role`. */
  param?: string;
  /** Further fields of the envelope, such as `credits_available`. */
  fields?: Record<string, number | string>;
  headers?: Record<string, string>;
  /** What happened inside; logged, never shown. */
  cause?: unknown;
}

/** An error with a row in the catalog; its message is public. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly param: string | null;
  readonly fields: Record<string, number | string>;
  readonly headers: Record<string, string>;

  constructor(code: ErrorCode, message: string = errorCatalog[code].message, options: ApiErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.name = "ApiError";
    this.code = code;
    this.status = errorCatalog[code].status;
    this.param = options.param ?? null;
    this.fields = options.fields ?? {};
    this.headers = options.headers ?? {};
  }

  /** The envelope that goes over the wire. */
  toEnvelope() {
    const { type } = errorCatalog[this.code];
    return { error: { message: this.message, type, param: this.param, code: this.code, ...this.fields } };
  }
}

/** Returns the error for a `cursor` that no page of a list has returned. */
export function invalidCursor(): ApiError {
  return new ApiError("invalid_value", "Invalid 'cursor': use the `next_cursor` of the previous page.", {
    param: "cursor",
  });
}

/** The store did not answer or refused to work: the only thing a caller is told is `store_unavailable`. */
export class StoreUnavailableError extends Error {
  /** Tells that the change may have been made all the same: the store was lost while it was committed. */
  mayBeBooked = false;

  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = "StoreUnavailableError";
  }
}

/** Tells of the reason why a request was aborted whether it is the service's own, and not that its client left. */
export function isOwnCut(reason: unknown): boolean {
  return reason instanceof StoppedError || reason instanceof StoreUnavailableError;
}

/** A batch was not booked, because another transaction has locked the rows of some of its organizations. */
export class OrganizationsLockedError extends StoreUnavailableError {
  readonly organizationIds: ReadonlySet<string>;

  constructor(organizationIds: Iterable<string>, options?: { cause?: unknown }) {
    super("The credits of the organization are locked by another transaction.", options);
    this.name = "OrganizationsLockedError";
    this.organizationIds = new Set(organizationIds);
  }
}

/** The service stops and waits no longer for an answer: the reason of an abort that is not its client's doing. */
export class StoppedError extends Error {
  constructor() {
    super("The service stops");
    this.name = "StoppedError";
  }
}

/** A mistake of the person at the command line or in the configuration: one line, exit 1, no stack. */
export class OperatorError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = "OperatorError";
  }
}

/** What went wrong upstream, in the service's own terms. */
export type UpstreamFailure =
  /** Refused the request as malformed: 400. */
  | "rejected"
  /** Cannot be told on the upstream's wire, so that it was not asked, or not believed: 400, in the service's own words. */
  | "unsupported"
  | "context_length"
  | "content_filter"
  /** Took neither our key nor our account: the operator's fault, never the caller's. */
  | "credentials"
  /** Knows no such model or address: the operator's fault as well. */
  | "misconfigured"
  | "overloaded"
  | "unavailable"
  | "timeout"
  /** Answered with something that is not an answer. */
  | "malformed"
  | "failed";

export class UpstreamError extends Error {
  readonly failure: UpstreamFailure;
  /** Seconds, from the upstream's Retry-After. */
  readonly retryAfterSeconds: number | undefined;
  /** A sentence that may be shown to the caller: scrubbed of keys, addresses and account names. */
  readonly publicReason: string | undefined;
  /** The field of the request at fault, as `messages[0].content`. */
  readonly param: string | undefined;
  /** The upstream's own words, scrubbed. They may quote a prompt: for the operator's eyes, and for no log. */
  readonly said: string | undefined;

  constructor(
    failure: UpstreamFailure,
    message: string,
    options: { retryAfterSeconds?: number; publicReason?: string; param?: string; said?: string; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = "UpstreamError";
    this.failure = failure;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.publicReason = options.publicReason;
    this.param = options.param;
    this.said = options.said;
  }
}
