import type { AdminKeyName, AdminKeyRows } from "../stores/queries/idempotency-keys.ts";
import type { Log } from "../telemetry/logger.ts";

const KEPT_MS = 24 * 60 * 60 * 1000;
/** Longer than any change of an administrator takes: the process that made the claim must have ended. */
const RUNNING_MS_MAX = 60_000;

/** Whether a request is the first with its Idempotency-Key, and otherwise what became of the first. */
export type AdminKeyOutcome =
  | { outcome: "claimed" }
  | { outcome: "replayed"; status: number; answer: unknown }
  | { outcome: "in_progress" }
  /** It did not end, or failed: whether it changed anything is not known. */
  | { outcome: "interrupted" }
  /** It was another request. */
  | { outcome: "mismatch" };

export interface AdminKeysOptions {
  rows: AdminKeyRows;
  log: Log;
}

/**
 * Idempotency keys of administrators. A key is claimed durably before its request changes anything, and kept for 24 hours
 * with the answer. A claim without an answer is never run again: only a request that was refused frees its key.
 */
export class AdminKeys {
  readonly #rows: AdminKeyRows;
  readonly #log: Log;

  constructor({ rows, log }: AdminKeysOptions) {
    this.#rows = rows;
    this.#log = log;
  }

  /** Claims the key for a request with this fingerprint. Rejects with StoreUnavailableError. */
  async claim(name: AdminKeyName, fingerprint: string): Promise<AdminKeyOutcome> {
    if (await this.#rows.claimAdminKey({ ...name, fingerprint, keepMs: KEPT_MS })) return { outcome: "claimed" };
    const row = await this.#rows.adminKey(name);
    // Freed since the claim was refused: the client may try again at once.
    if (row === undefined) return { outcome: "in_progress" };
    if (row.fingerprint !== fingerprint) return { outcome: "mismatch" };
    const { state, status, answer, ageMs } = row;
    if (status !== null && answer !== null) return { outcome: "replayed", status, answer: JSON.parse(answer) };
    return { outcome: state === "running" && ageMs < RUNNING_MS_MAX ? "in_progress" : "interrupted" };
  }

  /** Keeps an answer, which must hold no secret. Never rejects: what was changed is changed, and is answered. */
  async answer(name: AdminKeyName, status: number, answer: unknown): Promise<void> {
    await this.#end(() => this.#rows.answerAdminKey(name, { status, answer: JSON.stringify(answer ?? null) }));
  }

  /** Frees the key of a request that was refused and changed nothing. Never rejects. */
  async free(name: AdminKeyName): Promise<void> {
    await this.#end(() => this.#rows.freeAdminKey(name));
  }

  /** Says of a request that failed that its outcome is not known. Never rejects. */
  async interrupt(name: AdminKeyName): Promise<void> {
    await this.#end(() => this.#rows.interruptAdminKey(name));
  }

  async #end(write: () => Promise<void>): Promise<void> {
    try {
      await write();
    } catch (error) {
      this.#log.warn(
        { err: error },
        "the end of a request with an Idempotency-Key was not stored: it counts as interrupted",
      );
    }
  }
}
