import type { StatementEntry } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";

export const KIND_WORDS: Record<StatementEntry["kind"], string> = {
  grant: "granted",
  charge: "charged",
  revoke: "taken back",
  credit: "given back",
  lapse: "lapsed",
  closing: "a day's charges",
};

/** What an entry is about: the model and its tokens for a charge, what it was for else. */
export function wordsOf({ kind, model, tokens, reference, note, id }: StatementEntry): string {
  if (kind === "charge") {
    const count = tokens === null ? 0 : Object.values(tokens).reduce((sum, one) => sum + one, 0);
    return [model ?? id, count > 0 && countOf(count, "token")].filter(Boolean).join(", ");
  }
  return [reference, note].filter(Boolean).join(": ") || (id ?? "");
}
