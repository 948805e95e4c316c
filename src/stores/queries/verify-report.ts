import { PAYMENT, TOP_UP, TOP_UP_CHARGE } from "../admin-schema.ts";
import { ADJUSTMENT, ALLOWANCE, BALANCE, BUDGET, BUDGET_USE, GRANT, HOLD, KEY, TOKEN } from "../schema.ts";
import type { RowOf, Table, TableShape } from "../table.ts";

/** The tables of which a verification reads all rows of an organization. */
export const TABLES = {
  ...{ balances: BALANCE, budgets: BUDGET, budgetUses: BUDGET_USE, grants: GRANT, holds: HOLD, keys: KEY },
  ...{ adjustments: ADJUSTMENT, tokens: TOKEN, allowances: ALLOWANCE, payments: PAYMENT },
  ...{ topUps: TOP_UP, topUpCharges: TOP_UP_CHARGE },
};
export type RowsOfTables = { [Name in keyof typeof TABLES]: RowOf<(typeof TABLES)[Name]>[] };

export interface Violation {
  /** Number of the invariant, as in docs/ledger.md. */
  invariant: number;
  organizationId: string;
  holdId: string | null;
  message: string;
  /** The row, if it violates the invariant by itself. */
  row?: { table: string; id: string };
}

/** Reports a violation, with the number of the invariant in docs/ledger.md. */
export type ReportViolation = (
  invariant: number,
  message: string,
  holdId?: string | null,
  of?: { organizationId?: string; row?: Violation["row"] },
) => void;

/** Number of violations of each invariant of an organization that are reported. */
export const REPORTED_MAX = 100;
const ORGANIZATION_COLUMN = "organization_id";

/** The violations of one organization. All are counted; of each invariant, the first ones are kept. */
export class Violations {
  readonly list: Violation[] = [];
  more = 0;
  readonly #organizationId: string;
  readonly #counts = new Map<number, number>();

  constructor(organizationId: string) {
    this.#organizationId = organizationId;
  }

  report: ReportViolation = (
    invariant,
    message,
    holdId = null,
    { organizationId = this.#organizationId, row } = {},
  ) => {
    const count = this.#counts.get(invariant) ?? 0;
    this.#counts.set(invariant, count + 1);
    if (count >= REPORTED_MAX) this.more += 1;
    else this.list.push({ invariant, organizationId, holdId, message, ...(row && { row }) });
  };
}

/** A later time than this from now is in the future. */
export const AHEAD_MS = 60_000;

/**
 * Decodes records of a table, and checks their amounts and past times. One that is malformed, or whose own `check` throws,
 * becomes a violation of its own and is left out, so that it does not hide what is wrong with others.
 */
export function checkEach<Row extends object>(
  table: Table<Row>,
  records: readonly object[],
  report: ReportViolation,
  nowMs = Number.POSITIVE_INFINITY,
  check: (row: Row) => void = () => {},
): Row[] {
  const sound: Row[] = [];
  for (const record of records) {
    const fault = (invariant: number, what: string) => reportRow(table, record, invariant, what, report);
    const found = table.examine(record, check);
    if (typeof found === "string") {
      fault(11, `is malformed: ${found}`);
      continue;
    }
    for (const name of table.amountsBelowZero(found)) fault(6, `has ${String(name)} ${found[name]}, below 0`);
    for (const name of table.timesAfter(found, nowMs + AHEAD_MS)) {
      fault(13, `has ${String(name)} ${found[name]}, in the future`);
    }
    sound.push(found);
  }
  return sound;
}

/** Decodes those records of a table that are well-formed, where another step reports the others. */
export function soundRows<Row extends object>(table: Table<Row>, records: readonly object[]): Row[] {
  return records.map((record) => table.examine(record)).filter((found) => typeof found !== "string") as Row[];
}

function reportRow(
  { name, key }: Pick<TableShape, "name" | "key">,
  record: object,
  invariant: number,
  what: string,
  report: ReportViolation,
): void {
  const cells = record as Record<string, unknown>;
  const names = key.filter((column) => column !== ORGANIZATION_COLUMN || key.length === 1);
  const id = names.map((column) => idText(cells[column])).join(" ");
  const holdId = name === "hold" || name === "request" ? id : cells.hold_id;
  const owner = cells[name === "organization" ? "id" : ORGANIZATION_COLUMN];
  const of = { row: { table: name, id }, ...(typeof owner === "string" && { organizationId: owner }) };
  report(invariant, `The row ${id} of the table ${name} ${what}.`, typeof holdId === "string" ? holdId : null, of);
}

function idText(cell: unknown): string {
  return cell instanceof Uint8Array ? Buffer.from(cell).toString("hex") : String(cell);
}

/** Compares properties of a row with their expected values, which `source` says. Each difference is a violation. */
export function compare<Row extends object>(
  report: ReportViolation,
  invariant: number,
  what: string,
  stored: Row,
  expected: { [Property in keyof Row]?: unknown },
  source: string,
): void {
  for (const name of Object.keys(expected) as (keyof Row)[]) {
    const [found, wanted] = [valueText(stored[name]), valueText(expected[name])];
    if (found !== wanted) report(invariant, `The ${what} has ${String(name)} ${found}, but ${source} ${wanted}.`);
  }
}

function valueText(value: unknown): string {
  return typeof value === "bigint" ? String(value) : JSON.stringify(value ?? null);
}
