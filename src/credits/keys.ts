import { type Batch, chargeOf, holdOf, requestOf } from "./batch.ts";
import type { HoldTransition, IdempotencyClaim, KeyOutcome } from "./books.ts";

/** Outcome of an earlier request with the key; undefined where there was none, or the key has expired. */
export function earlierAnswer(
  batch: Batch,
  { key, fingerprint }: IdempotencyClaim,
  { organizationId }: HoldTransition["facts"],
  available: bigint,
): KeyOutcome | undefined {
  const row = batch.keys.get(organizationId, key);
  if (row === undefined || row.expiresAtMs <= batch.nowMs) return undefined;
  if (row.fingerprint !== fingerprint) return { outcome: "mismatch" };
  const request = requestOf(batch, row);
  if (row.answer !== null) {
    const charged = request === undefined ? 0n : chargeOf(batch, request).charged;
    return { outcome: "replayed", answer: row.answer, charged, available };
  }
  return { outcome: holdOf(batch, row) === undefined ? "interrupted" : "in_progress" };
}

interface Named {
  organizationId: string;
  holdId: string;
}

/** Claims the key for a hold, in the place of one that has expired. */
export function claimKey(batch: Batch, { key, fingerprint, keepMs }: IdempotencyClaim, hold: Named): void {
  const { organizationId, holdId } = hold;
  const times = { createdAtMs: batch.nowMs, expiresAtMs: batch.nowMs + keepMs };
  batch.keys.set(organizationId, key, { organizationId, key, fingerprint, holdId, answer: null, ...times });
}

/** Stores the answer of a request under its key. */
export function keepAnswer(batch: Batch, request: Named, key: string | null, answer: string): void {
  const row = keyOf(batch, request, key);
  if (row !== undefined) batch.keys.set(row.organizationId, row.key, { ...row, answer });
}

/** Removes the key of a request that was released. */
export function freeKey(batch: Batch, request: Named, key: string | null): void {
  const row = keyOf(batch, request, key);
  if (row !== undefined) batch.keys.delete(row.organizationId, row.key);
}

/** The key only while it names this request: after its expiry it may belong to another. */
function keyOf(batch: Batch, { organizationId, holdId }: Named, key: string | null) {
  if (key === null) return undefined;
  const row = batch.keys.get(organizationId, key);
  return row?.holdId === holdId ? row : undefined;
}
