import { ApiError } from "../errors.ts";
import type { AdminKeyName } from "../stores/queries/admin.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";

const KEPT_MS = 24 * 60 * 60 * 1000;
/** Longer than any change takes: the process that claimed the key must have ended. */
const RUNNING_MS_MAX = 60_000;

export type AdminKeys = ReturnType<typeof adminKeysOver>;

/** Idempotency keys of the admin API, stored for 24 hours. A claim without a response is never run again, unless it was refused. */
export function adminKeysOver({ rows, log }: { rows: Store["admin"]; log: Log }) {
  const logged = (write: Promise<unknown>) =>
    write.catch((error: unknown) => {
      const text = "the end of a request with an Idempotency-Key was not stored: it counts as interrupted";
      log.warn({ err: error }, text);
    });
  return {
    /** Claims a key. Returns the answer to its first request; undefined if this is the first one. Rejects with ApiError. */
    async claim(name: AdminKeyName, fingerprint: string): Promise<{ status: number; answer: unknown } | undefined> {
      if (await rows.claimAdminKey({ ...name, fingerprint, keepMs: KEPT_MS })) return undefined;
      const row = await rows.adminKey(name);
      // The key was freed after the claim was refused. The client may retry at once.
      if (row === undefined) throw inProgress();
      const headers = { "x-should-retry": "false" };
      if (row.fingerprint !== fingerprint) {
        const message = "This Idempotency-Key was used for another request. Use a new key.";
        throw new ApiError("idempotency_mismatch", message, { headers });
      }
      const { state, status, answer, ageMs } = row;
      if (status !== null && answer !== null) return { status, answer: JSON.parse(answer) };
      if (state === "running" && ageMs < RUNNING_MS_MAX) throw inProgress();
      // The first request did not complete, or failed: it may have changed something.
      const message =
        "The first request with this Idempotency-Key did not complete, so it is not known whether it changed anything. Check that, then use a new key.";
      throw new ApiError("idempotency_interrupted", message, { headers });
    },
    /** Stores a response, which must contain no secret. Never rejects, since the change is already made. */
    answer: (name: AdminKeyName, status: number, answer: unknown) =>
      logged(rows.answerAdminKey(name, status, JSON.stringify(answer ?? null))),
    /** Frees the key of a request that was refused and changed nothing. Never rejects. */
    free: (name: AdminKeyName) => logged(rows.freeAdminKey(name)),
    /** Marks a failed request, whose outcome is not known. Never rejects. */
    interrupt: (name: AdminKeyName) => logged(rows.interruptAdminKey(name)),
  };
}

function inProgress(): ApiError {
  return new ApiError("idempotency_in_progress", undefined, { headers: { "retry-after": "1" } });
}
