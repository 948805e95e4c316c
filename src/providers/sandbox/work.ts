/** A JSON schema as an object of keywords; callers write it, so nothing in it has a known type. */
export type Schema = Readonly<Record<string, unknown>>;

/** A schema for which the sandbox makes no example; the message says why. */
export class UnsupportedSchemaError extends Error {
  /** The part of the schema, as a JSON pointer from its root; undefined until it is known. */
  place: string | undefined;

  constructor(message: string) {
    super(message);
    this.name = "UnsupportedSchemaError";
  }
}

/** The work budget of a request is spent: no alternative of the schema is tried any more. */
export class WorkExceededError extends UnsupportedSchemaError {
  constructor() {
    super("it needs too much work");
    this.name = "WorkExceededError";
  }
}

/** Steps that one request may cost. A step is about one character or one keyword that is read, compared or written. */
export const WORK_STEPS_MAX = 500_000;

/** Costs of the more expensive operations, measured relative to reading one character. */
export const STEPS = {
  /** A value that is made, beside what is written of it. */
  value: 100,
  /** A keyword or property that is listed or copied. */
  key: 20,
  /** An alternative that does not work. */
  failure: 400,
} as const;

/**
 * The work budget of one request. Everything that the sandbox makes beyond what it was sent is paid from it, before it
 * is made, so that no request can keep the event loop busy. Counted in steps, never in time: the same request has the
 * same outcome on every machine.
 */
export class Work {
  #left = WORK_STEPS_MAX;

  /** Steps spent so far. */
  get spent(): number {
    return WORK_STEPS_MAX - this.#left;
  }

  /** Takes steps from the budget. Throws WorkExceededError where that many are not left. */
  spend(steps: number): void {
    if (!(steps <= this.#left)) throw new WorkExceededError();
    this.#left -= steps;
  }
}
