import type { Table } from "../table.ts";

export interface Violation {
  /** Number of the invariant, as in docs/ledger.md. */
  invariant: number;
  organizationId: string;
  holdId: string | null;
  message: string;
  /** The row, if it cannot be read. */
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
  /** Number of those that are not in the list. */
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

/**
 * Decodes records of a table. A record that is malformed, and one whose check fails, becomes a violation of its own and is
 * left out, so that it does not hide what is wrong with others.
 */
export function checkEach<Row extends object>(
  table: Pick<Table<Row>, "name" | "key" | "examine">,
  records: readonly object[],
  report: ReportViolation,
  check: (row: Row) => void = () => {},
): Row[] {
  const sound: Row[] = [];
  for (const record of records) {
    const found = table.examine(record);
    const failure = typeof found === "string" ? found : failureOf(() => check(found));
    if (failure === undefined) sound.push(found as Row);
    else reportMalformed(table, record, failure, report);
  }
  return sound;
}

/** Decodes those records of a table that are well-formed, where another step reports the others. */
export function soundRows<Row extends object>(table: Pick<Table<Row>, "examine">, records: readonly object[]): Row[] {
  return records.map((record) => table.examine(record)).filter((found) => typeof found !== "string") as Row[];
}

function reportMalformed(
  { name, key }: Pick<Table<object>, "name" | "key">,
  record: object,
  failure: string,
  report: ReportViolation,
): void {
  const cells = record as Record<string, unknown>;
  const names = key.filter((column) => column !== ORGANIZATION_COLUMN || key.length === 1);
  const id = names.map((column) => textOf(cells[column])).join(" ");
  const holdId = name === "hold" || name === "request" ? id : null;
  const owner = cells[name === "organization" ? "id" : ORGANIZATION_COLUMN];
  const of = { row: { table: name, id }, ...(typeof owner === "string" && { organizationId: owner }) };
  report(11, `The row ${id} of the table ${name} is malformed: ${failure}.`, holdId, of);
}

function textOf(cell: unknown): string {
  return cell instanceof Uint8Array ? Buffer.from(cell).toString("hex") : String(cell);
}

function failureOf(check: () => void): string | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
