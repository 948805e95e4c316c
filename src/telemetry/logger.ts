/** The logger that the rest of the service uses. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** A request in the access log, without secrets and without prompts or answers. */
export interface AccessEntry {
  requestId: string;
  method: string;
  /** Pattern of the matched route, not the requested path; null if no route matched. */
  route: string | null;
  /** HTTP status; 499 if the client disconnected before the answer was complete. */
  status: number;
  /** Error code; null if the request succeeded. */
  code: string | null;
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  durationMs: number;
}

export interface AccessLog {
  record(entry: AccessEntry): void;
}
