import type { AdminRows } from "../stores/queries/admin.ts";
import type { Log } from "../telemetry/logger.ts";
import { type Actor, type AuditTime, auditRow } from "./audit.ts";

export interface SignInFailuresOptions extends AuditTime {
  rows: Pick<AdminRows, "insertFailedSignIn">;
  log: Log;
}

export interface SignInFailure {
  reason: "unknown_token" | "revoked_token" | "expired_token" | "insufficient_scope" | "playground_token";
  /** First characters of the token that was presented; null where it does not look like a token. */
  prefix: string | null;
  /** The token that was presented; null if it is unknown. */
  token: { id: string; organizationId: string | null } | null;
}

/** Origin of a request. */
export type Origin = Pick<Actor, "address" | "requestId">;

const WINDOW_MS = 60_000;
const ENTRIES_A_WINDOW = 20;
/** Number of entries of failed sign-ins in the store. */
const KEPT_ENTRIES = 10_000;

/**
 * Records failed sign-ins, at most 20 entries per minute on each node, so that an attacker cannot fill the store. Further
 * failures of that minute are counted in one entry. The store keeps the newest 10,000 of these entries.
 */
export class SignInFailures {
  readonly #options: SignInFailuresOptions;
  #windowBeganAtMs = Number.NEGATIVE_INFINITY;
  #entries = 0;
  #omitted = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: SignInFailuresOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => void this.#writeOmitted(), WINDOW_MS).unref();
  }

  /** Records the count of the failures that have no entry of their own. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writeOmitted();
  }

  /** Records a failed sign-in. Rejects with StoreUnavailableError. */
  async record({ address, requestId }: Origin, { reason, prefix, token }: SignInFailure): Promise<void> {
    const nowMs = this.#options.clock();
    const ageMs = nowMs - this.#windowBeganAtMs;
    if (ageMs < 0 || ageMs >= WINDOW_MS) {
      await this.#writeOmitted();
      this.#windowBeganAtMs = nowMs;
      this.#entries = 0;
    }
    if (this.#entries >= ENTRIES_A_WINDOW) {
      this.#omitted += 1;
      return;
    }
    this.#entries += 1;
    await this.#insert({ address, requestId, token, after: { reason, token: prefix } });
  }

  /** Writes the count of further failures. Never rejects: a count that cannot be written is added to the next one. */
  async #writeOmitted(): Promise<void> {
    const attempts = this.#omitted;
    if (attempts === 0) return;
    this.#omitted = 0;
    try {
      await this.#insert({ address: null, requestId: null, token: null, after: { furtherAttempts: attempts } });
    } catch (error) {
      this.#omitted += attempts;
      this.#options.log.debug({ err: error }, "the count of failed sign-ins could not be written");
    }
  }

  async #insert(
    entry: Origin & Pick<SignInFailure, "token"> & { after: Record<string, string | number | null> },
  ): Promise<void> {
    const { address, requestId, token, after } = entry;
    const subject = { organizationId: token?.organizationId ?? null, subjectId: token?.id ?? null };
    const actor: Actor = { kind: "anonymous", id: null, address, requestId };
    const row = auditRow(actor, { action: "session.sign_in_failed", ...subject, after }, this.#options);
    await this.#options.rows.insertFailedSignIn(row, KEPT_ENTRIES);
  }
}
