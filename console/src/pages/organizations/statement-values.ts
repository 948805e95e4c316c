import type { StatementEntry } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";
import type { Days } from "../../format/times.ts";

const DAY_MS = 86_400_000;

/** Converts UTC days to the query of a period: from the start of the first to the end of the last. An empty end is open. */
export function periodOf({ from, to }: Days): { from?: string; to?: string } {
  const [startMs, endMs] = [from, to].map((day) => Date.parse(`${day}T00:00:00Z`)) as [number, number];
  return {
    ...(!Number.isNaN(startMs) && { from: new Date(startMs).toISOString() }),
    ...(!Number.isNaN(endMs) && { to: new Date(endMs + DAY_MS).toISOString() }),
  };
}

export const KIND_LABELS: Record<StatementEntry["kind"], string> = {
  grant: "Granted",
  charge: "Charged",
  revoke: "Revoked",
  credit: "Refunded",
  lapse: "Expired",
};

/** Label of a reference. The reference of a monthly allowance is shortened to its day. */
export function referenceLabel(reference: string): string {
  const day = /^allowance\/[^/]+\/(\d{4}-\d{2}-\d{2})$/.exec(reference)?.[1];
  return day === undefined ? reference : `Allowance ${day}`;
}

/** Describes an entry: model and tokens of a charge, otherwise reference and note. */
export function entryDescription({ kind, model, tokens, reference, note, id }: StatementEntry): string {
  if (kind === "charge") {
    const count = tokens === null ? 0 : Object.values(tokens).reduce((sum, one) => sum + one, 0);
    return [model ?? id, count > 0 && countOf(count, "token")].filter(Boolean).join(", ");
  }
  return [reference && referenceLabel(reference), note].filter(Boolean).join(": ") || (id ?? "");
}
