/** The logger that the rest of the service uses. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Reports a failure that repeats: one line when it begins, one a minute with a count, one when it is over. */
export interface OutageLog {
  failed(fields: object): void;
  succeeded(): void;
}

/** One answered request as the access log shows it. It holds no secret and nothing that was written to a model. */
export interface AccessEntry {
  requestId: string;
  method: string;
  /** The pattern of the route, not the path that was asked for; null where no route matched. */
  route: string | null;
  /** 499 where the client disconnected before the answer was complete. */
  status: number;
  /** The error's code; null where the request succeeded. */
  code: string | null;
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  durationMs: number;
}

export interface AccessLog {
  record(entry: AccessEntry): void;
}
