import type { Outcome, Transition } from "../credits/books.ts";

/** A transition that waits to be booked, and who asked for it. */
export interface QueuedTransition {
  transition: Transition;
  organizationId: string;
  /** Two transitions with the same one never go in one batch. */
  holdId: string | null;
  resolve: (outcome: Outcome) => void;
  reject: (reason: unknown) => void;
}

const BATCH_SIZE_MAX = 1_000;

/** Splits what waits into a batch of at most `size` transitions, in which no hold is named twice, and the rest in its order. */
export function takeBatch(
  waiting: readonly QueuedTransition[],
  size: number = BATCH_SIZE_MAX,
): { batch: QueuedTransition[]; rest: QueuedTransition[] } {
  const batch: QueuedTransition[] = [];
  const later: QueuedTransition[] = [];
  const holdIds = new Set<string>();
  const sizeMax = Math.min(BATCH_SIZE_MAX, size);
  let seen = 0;
  for (const entry of waiting) {
    if (batch.length === sizeMax) break;
    seen += 1;
    if (entry.holdId !== null && holdIds.has(entry.holdId)) later.push(entry);
    else batch.push(entry);
    if (entry.holdId !== null) holdIds.add(entry.holdId);
  }
  return { batch, rest: later.concat(waiting.slice(seen)) };
}

export function rejectAll(entries: readonly QueuedTransition[], error: unknown): void {
  for (const { reject } of entries) reject(error);
}
