import type { StatementEntry } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";

export const KIND_WORDS: Record<StatementEntry["kind"], string> = {
  grant: "Granted",
  charge: "Charged",
  revoke: "Revoked",
  credit: "Refunded",
  lapse: "Expired",
};

/** What something was for; what an allowance grants is told by its day instead of its ids. */
export function referenceInWords(reference: string): string {
  const day = /^allowance\/[^/]+\/(\d{4}-\d{2}-\d{2})$/.exec(reference)?.[1];
  return day === undefined ? reference : `Allowance ${day}`;
}

/** What an entry is about: the model and its tokens for a charge, what it was for else. */
export function wordsOf({ kind, model, tokens, reference, note, id }: StatementEntry): string {
  if (kind === "charge") {
    const count = tokens === null ? 0 : Object.values(tokens).reduce((sum, one) => sum + one, 0);
    return [model ?? id, count > 0 && countOf(count, "token")].filter(Boolean).join(", ");
  }
  return [reference && referenceInWords(reference), note].filter(Boolean).join(": ") || (id ?? "");
}
