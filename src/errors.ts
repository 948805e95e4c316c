/**
 * The catalog of all errors of the API, by code. `docs/errors.md` lists the same rows, and a test compares the two. The
 * message of a row is the default; code that throws an error may give a more precise one. Messages are public. Internal
 * details belong in `cause`, which is only logged.
 */
interface ErrorRow {
  status: number;
  type: string;
  /** True if the same request may succeed later. */
  retryable: boolean;
  message: string;
}

const invalid = (status: number, message: string, retryable = false) =>
  row("invalid_request_error", status, message, retryable);
const authentication = (message: string) => row("authentication_error", 401, message);
const noCredits = (message: string) => row("insufficient_quota", 402, message);
const permission = (message: string) => row("permission_error", 403, message);
const rateLimit = (message: string) => row("rate_limit_error", 429, message, true);
const server = (status: number, message: string) => row("server_error", status, message, true);

function row(type: string, status: number, message: string, retryable = false): ErrorRow {
  return { status, type, retryable, message };
}

export const errorCatalog = {
  invalid_json: invalid(400, "The request body is not valid JSON."),
  missing_required_parameter: invalid(400, "A required parameter is missing."),
  unknown_parameter: invalid(400, "A parameter is unknown."),
  invalid_type: invalid(400, "A parameter has the wrong type."),
  invalid_value: invalid(400, "A parameter has an invalid value."),
  unsupported_value: invalid(400, "The model does not support this value."),
  decimal_above_max_value: invalid(400, "A number is above its maximum."),
  decimal_below_min_value: invalid(400, "A number is below its minimum."),
  previous_response_not_found: invalid(400, "The previous response is not stored."),
  context_length_exceeded: invalid(400, "The prompt exceeds the model's context window."),
  max_cost_exceeded: invalid(400, "The request can cost more than its `x-tollgate-max-cost` allows."),
  content_filter: invalid(400, "The model's provider rejected the prompt because of its content policy."),
  upstream_rejected: invalid(400, "The model's provider rejected the request."),
  missing_token: authentication(
    "No access token was sent. Send the header `Authorization: Bearer <token>`, `x-api-key` or `x-goog-api-key`.",
  ),
  invalid_token: authentication("The access token is not valid."),
  expired_token: authentication("The access token has expired."),
  sign_in_failed: authentication("The sign-in was not completed. Start again."),
  insufficient_credits: noCredits("The organization's credits do not cover this request."),
  budget_exhausted: noCredits("A budget does not cover this request."),
  insufficient_scope: permission("The access token lacks the scope that this operation requires."),
  model_not_allowed: permission("The access token may not use this model."),
  organization_paused: permission("The organization is paused and accepts no new requests."),
  insufficient_role: permission("Your role does not permit this operation."),
  no_role: permission("This account has no role here."),
  account_blocked: permission("An operator has blocked this account."),
  csrf_check_failed: permission("The request did not come from the console's own pages."),
  usage_not_available_for_playground: permission("Usage is not available for the playground organization."),
  model_not_found: invalid(404, "The model does not exist or you do not have access to it."),
  not_found: invalid(404, "Route not found."),
  method_not_allowed: invalid(405, "The method is not allowed for this path."),
  already_rotated: invalid(409, "The token was already rotated."),
  token_ended: invalid(409, "The token was revoked or has expired."),
  voucher_ended: invalid(409, "The voucher was redeemed or revoked, or has expired."),
  reference_mismatch: invalid(409, "The reference was already used with other terms. Use another reference."),
  request_closed: invalid(
    409,
    "The request belongs to a closed period and can no longer be corrected. A credit without a request is goodwill.",
  ),
  erasure_not_due: invalid(409, "The organization cannot be erased yet.", true),
  idempotency_in_progress: invalid(409, "A request with this Idempotency-Key is still running. Try again later.", true),
  idempotency_interrupted: invalid(
    409,
    "The request with this Idempotency-Key was interrupted, and its response is not available. Use a new key.",
  ),
  body_too_large: invalid(413, "The request body is too large."),
  unsupported_media_type: invalid(415, "Send the request body as `Content-Type: application/json`."),
  idempotency_mismatch: invalid(422, "This Idempotency-Key was already used with another request. Use a new key."),
  upgrade_required: invalid(
    426,
    "WebSockets are not supported. Send the request by POST, with `stream: true` for events.",
  ),
  rate_limit_exceeded: rateLimit("A rate limit was exceeded. Try again later."),
  credits_held: rateLimit("Running requests hold the organization's credits. Try again later."),
  internal_error: server(500, "An internal error occurred. Report the x-request-id to the operator."),
  upstream_error: server(502, "The model's provider failed to answer the request."),
  upstream_unavailable: server(503, "The model's provider cannot be reached."),
  overloaded: server(503, "The model's provider is overloaded."),
  issuer_unavailable: server(503, "The identity provider cannot be reached. Try again later."),
  payment_provider_unavailable: server(503, "Stripe cannot be reached or refused the request. Try again later."),
  store_unavailable: server(503, "The service cannot reach its database. Try again later."),
  upstream_timeout: server(504, "The model's provider did not respond in time."),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof errorCatalog;

export type ErrorFields = Record<string, number | string | null | Record<string, number | string>>;

export interface ApiErrorOptions {
  /** Path of the invalid field, such as `messages[0].role`. */
  param?: string;
  /** Message for the request log, if `message` quotes the request. */
  loggedMessage?: string | undefined;
  fields?: ErrorFields;
  headers?: Record<string, string>;
  /** The same error for a command, which names the command that lists the ids. */
  command?: UnknownIdError | undefined;
  /** Internal error; logged, never sent. */
  cause?: unknown;
}

/** Error with a row in the catalog. Its message is public. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly type: string;
  readonly param: string | null;
  readonly fields: ErrorFields;
  readonly headers: Record<string, string>;
  readonly command: UnknownIdError | undefined;
  /** Message without values of the request. */
  readonly loggedMessage: string;

  constructor(code: ErrorCode, message: string = errorCatalog[code].message, options: ApiErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.name = "ApiError";
    this.code = code;
    this.status = errorCatalog[code].status;
    this.type = errorCatalog[code].type;
    this.param = options.param ?? null;
    this.fields = options.fields ?? {};
    this.headers = options.headers ?? {};
    this.command = options.command;
    this.loggedMessage = options.loggedMessage ?? message;
  }
}

/** Returns the error for a `cursor` that no page of a list has returned. */
export function invalidCursor(): ApiError {
  return new ApiError("invalid_value", "Invalid 'cursor': use the `next_cursor` of the previous page.", {
    param: "cursor",
  });
}

/** The store did not answer or rejected the operation. Callers receive `store_unavailable`. */
export class StoreUnavailableError extends Error {
  override name = "StoreUnavailableError";
  /** True if the change may be committed nevertheless, because the connection failed during the commit. */
  mayBeBooked = false;
}

/** True for the reason of an abort by the service itself, false for a client that disconnected. */
export function isOwnCut(reason: unknown): boolean {
  return reason instanceof StoppedError || reason instanceof StoreUnavailableError;
}

/** A batch was not committed, because another transaction has locked rows of its organizations. */
export class OrganizationsLockedError extends StoreUnavailableError {
  override name = "OrganizationsLockedError";
  readonly organizationIds: ReadonlySet<string>;

  constructor(organizationIds: Iterable<string>, options?: { cause?: unknown }) {
    super("The credits of the organization are locked by another transaction.", options);
    this.organizationIds = new Set(organizationIds);
  }
}

/** A batch was not committed, because other sessions of the database have locked whole tables. */
export class TablesLockedError extends StoreUnavailableError {
  override name = "TablesLockedError";
}

export class StoppedError extends Error {
  override name = "StoppedError";
  override message = "The service is shutting down";
}

/** An invalid command line or configuration: printed as one line without a stack, exit code 1. */
export class OperatorError extends Error {
  override name = "OperatorError";
}

/** An id that does not exist; the printed message adds the command that lists the ids. */
export class UnknownIdError extends OperatorError {
  override name = "UnknownIdError";
  readonly listedBy: string;

  constructor(what: string, id: string, listedBy: string) {
    super(`There is no ${what} with the id ${JSON.stringify(id)}.`);
    this.listedBy = listedBy;
  }
}

export type UpstreamFailure =
  /** The upstream rejected the request: 400. */
  | "rejected"
  /** The upstream's protocol cannot express the request: 400. */
  | "unsupported"
  | "context_length"
  | "content_filter"
  /** The upstream rejected our key or account, which only the operator can fix. */
  | "credentials"
  /** The upstream has no such model or path, which only the operator can fix. */
  | "misconfigured"
  /** The upstream refuses calls above its rate limit: 429. */
  | "rate_limited"
  | "overloaded"
  | "unavailable"
  | "timeout"
  /** The response of the upstream is not valid. */
  | "malformed"
  | "failed";

export class UpstreamError extends Error {
  readonly failure: UpstreamFailure;
  /** From the upstream's Retry-After. */
  readonly retryAfterSeconds: number | undefined;
  /** Public sentence for the caller, without keys, addresses and account names. */
  readonly publicReason: string | undefined;
  readonly param: string | undefined;
  /** The upstream's own message, without keys. It may quote a prompt: never log it. */
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

/** Returns the failure of a request with a field that an upstream cannot take. `reason` follows the name of the field. */
export function unsupportedField(param: string, reason: string, message = `The upstream takes no ${param}`) {
  return new UpstreamError("unsupported", message, { publicReason: `Invalid '${param}': ${reason}.`, param });
}
