import type { StatementEntry, StatementPage } from "../../api/types.ts";
import { countOf, formatExactCredits } from "../../format/numbers.ts";

export const KIND_LABELS: Record<StatementEntry["kind"], string> = {
  grant: "Granted",
  charge: "Charged",
  revoke: "Revoked",
  credit: "Refunded",
  lapse: "Expired",
};

/** Labels of the totals of a statement, in the order in which they are shown. */
export const TOTAL_LABELS: readonly (readonly [keyof NonNullable<StatementPage["totals"]>, string])[] = [
  ["grant", "Granted"],
  ["allowance", "Allowances"],
  ["credit", "Refunded"],
  ["charge", "Charged"],
  ["revoke", "Revoked"],
  ["lapse", "Expired"],
];

/** Label of a reference. The reference of a monthly allowance is shortened to its day. */
export function referenceLabel(reference: string): string {
  const day = /^allowance\/[^/]+\/(\d{4}-\d{2}-\d{2})$/.exec(reference)?.[1];
  return day === undefined ? reference : `Allowance ${day}`;
}

/** Describes an entry: model and tokens of a charge, otherwise reference and note. */
export function entryDescription({ kind, model, tokens, reference, note, id, retry }: StatementEntry): string {
  if (kind === "charge") {
    const count = tokens === null ? 0 : Object.values(tokens).reduce((sum, one) => sum + one, 0);
    const less = retry && `retry: ${formatExactCredits(retry.credited)} credits not charged again`;
    return [model ?? id, count > 0 && countOf(count, "token"), less].filter(Boolean).join(", ");
  }
  return [reference && referenceLabel(reference), note].filter(Boolean).join(": ") || (id ?? "");
}

/** Names the token of an entry and the budgets in which it counts, with the value of each; null if there is none. */
export function countedLabel({ token_id, token_name, budgets }: StatementEntry): string | null {
  const names = budgets.map(({ id, name, value }) => `${name ?? id}${value === null ? "" : ` (${value})`}`);
  const parts = [
    token_id !== null && `Token: ${token_name ?? token_id}`,
    names.length > 0 && `${names.length === 1 ? "Budget" : "Budgets"}: ${names.join(", ")}`,
  ];
  return parts.filter(Boolean).join(" · ") || null;
}
