import type { Hold } from "./books.ts";
import type { Record } from "./records.ts";

/**
 * Invariant 9, for keys: returns the faults in the answer to a repeated request with the same key. Both requests share one
 * hold, whose charge is checked elsewhere.
 */
export function checkRepetition(first: Record, again: Record | undefined, hold: Hold | undefined): string[] {
  if (again === undefined) return [];
  const { status, end, code, usage, wordsAt } = again.client;
  const answer = `repeated, it was answered ${status} ${end} ${code ?? ""}`;
  if (first.client.end === "all") {
    if (end !== "all") return [`${answer} after a complete answer`];
    if (JSON.stringify(usage) !== JSON.stringify(first.client.usage)) return ["repeated, its usage is another"];
    return wordsAt.length === first.client.wordsAt.length ? [] : [`repeated, it has ${wordsAt.length} words`];
  }
  if (status === 409 && (code === "idempotency_interrupted" || code === "idempotency_in_progress")) return [];
  if (end !== "all" || status !== 200) return [answer];
  if (hold?.state !== "charged") return ["repeated, it was answered whole, and is not charged"];
  return wordsAt.length === first.script.words ? [] : [`repeated, it has ${wordsAt.length} of its words`];
}
