import type { BudgetUse, RecordedUses } from "./facts.ts";

/** A counter of a budget, with the text that identifies it within its organization. */
export interface Counter extends BudgetUse {
  id: string;
}

const NONE: readonly Counter[] = [];
/** A text of a hundred budgets with long values has 56,000. */
const CHARACTERS_MAX = 500_000;

/** The counters of texts that were read lately: a request's are needed several times between admission and charge. */
const lately = new Map<string, readonly Counter[]>();
let latelyCharacters = 0;

/** Returns a text that identifies a counter within its organization. Ids of budgets have no spaces. */
export function counterIdOf({ budgetId, windowAtMs, value }: BudgetUse): string {
  return `${budgetId} ${windowAtMs} ${value}`;
}

/** Returns the text that a request records for the counters that it uses: a JSON list with a list for each. */
export function recordedTextOf(uses: readonly BudgetUse[]): RecordedUses {
  if (uses.length === 0) return null;
  return JSON.stringify(uses.map(({ budgetId, windowAtMs, value }) => [budgetId, windowAtMs, value]));
}

/** Returns the counters of such a text. Throws an error for another text. */
export function countersIn(recorded: RecordedUses | undefined): readonly Counter[] {
  if (recorded === null || recorded === undefined) return NONE;
  const known = lately.get(recorded);
  if (known !== undefined) return known;
  const uses = JSON.parse(recorded) as [string, number, string][];
  const counters = uses.map(([budgetId, windowAtMs, value]) => {
    const use = { budgetId, windowAtMs, value };
    return { id: counterIdOf(use), ...use };
  });
  latelyCharacters += recorded.length;
  if (latelyCharacters > CHARACTERS_MAX) {
    lately.clear();
    latelyCharacters = recorded.length;
  }
  lately.set(recorded, counters);
  return counters;
}
