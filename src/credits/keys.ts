import { type Batch, holdOf } from "./batch.ts";
import type { HoldRow, HoldTransition, IdempotencyClaim, KeyOutcome } from "./books.ts";
import { nameKey } from "./names.ts";

/** What became of an earlier request with the key; undefined where there was none, or it is past its time. */
export function earlierAnswer(
  batch: Batch,
  { key, fingerprint }: IdempotencyClaim,
  { organizationId }: HoldTransition["facts"],
  available: bigint,
): KeyOutcome | undefined {
  const row = batch.keys.get(nameKey(organizationId, key));
  if (row === undefined || row.expiresAtMs <= batch.nowMs) return undefined;
  if (row.fingerprint !== fingerprint) return { outcome: "mismatch" };
  const hold = holdOf(batch, row);
  if (row.answer !== null) return { outcome: "replayed", answer: row.answer, charged: hold?.charged ?? 0n, available };
  return { outcome: hold?.state === "open" ? "in_progress" : "interrupted" };
}

/** Keeps the key for the hold that was made, in the place of one past its time. */
export function claimKey(batch: Batch, { key, fingerprint, keepMs }: IdempotencyClaim, hold: HoldRow): void {
  const { organizationId, holdId } = hold;
  const times = { createdAtMs: batch.nowMs, expiresAtMs: batch.nowMs + keepMs };
  batch.keys.set(nameKey(organizationId, key), { organizationId, key, fingerprint, holdId, answer: null, ...times });
}

/** Keeps the answer for whoever comes with the hold's key again. */
export function keepAnswer(batch: Batch, hold: HoldRow, answer: string): void {
  const row = keyOf(batch, hold);
  if (row !== undefined) batch.keys.set(nameKey(row.organizationId, row.key), { ...row, answer });
}

export function freeKey(batch: Batch, hold: HoldRow): void {
  const row = keyOf(batch, hold);
  if (row !== undefined) batch.keys.delete(nameKey(row.organizationId, row.key));
}

/** The hold's own: past its time the key may be another's. */
function keyOf(batch: Batch, { organizationId, holdId, idempotencyKey }: HoldRow) {
  if (idempotencyKey === null) return undefined;
  const row = batch.keys.get(nameKey(organizationId, idempotencyKey));
  return row?.holdId === holdId ? row : undefined;
}
