import type { AuditRow } from "../../credits/audit.ts";
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

/** A service may read its clock twice for a change and its record, and services' clocks may differ. */
const NEAR_MS = 60_000;
/** Records are removed from the oldest on, by the clock of a service; bookings have the time of the store's clock. */
const REMOVED_WITHIN_MS = 3_600_000;

export type Terms = Record<string, unknown>;
/** The value of a column that no record changes, and the record that says so; undefined if that was removed. */
interface Earlier {
  record: AuditRow | undefined;
  value: unknown;
}

/** The audit records of an organization, to be compared with its rows. */
export class Records {
  readonly #records: Map<string, AuditRow[]>;
  readonly #completeFromMs: number;
  readonly report: ReportViolation;

  constructor(records: readonly AuditRow[], report: ReportViolation) {
    const [oldest] = records;
    this.#records = Map.groupBy(records, ({ action, subjectId }) => `${action} ${subjectId}`);
    this.report = report;
    if (oldest === undefined) this.#completeFromMs = Number.POSITIVE_INFINITY;
    else if (oldest.action === "organization.create") this.#completeFromMs = Number.NEGATIVE_INFINITY;
    else this.#completeFromMs = oldest.madeAtMs + REMOVED_WITHIN_MS;
  }

  /** True if the creation of the organization is recorded: no record of it was removed. */
  get areComplete(): boolean {
    return this.#completeFromMs === Number.NEGATIVE_INFINITY;
  }

  /** Returns the records of an action on a row, oldest first. */
  of(action: string, subjectId: string): AuditRow[] {
    return this.#records.get(`${action} ${subjectId}`) ?? [];
  }

  /** Returns the record that a change must have; reports a missing one, unless old records were removed. */
  required(action: string, what: string, subjectId: string, atMs: number): AuditRow | undefined {
    const [record] = this.of(action, subjectId);
    if (record === undefined && atMs >= this.#completeFromMs) {
      this.report(12, `The ${what} has no audit record ${action}.`);
    }
    return record;
  }

  /** Reports records of an action whose row does not exist. */
  expectRows(action: string, ids: ReadonlySet<string>): void {
    for (const [key, [record]] of this.#records) {
      if (record?.action !== action || ids.has(record.subjectId ?? "")) continue;
      this.report(12, `The audit record ${record.id}, ${key}, is of a row that does not exist.`);
    }
  }

  /** Compares the columns of a row with a record. */
  compare(what: string, record: AuditRow, stored: Terms, recorded: Terms): void {
    for (const [name, value] of Object.entries(recorded)) {
      const [found, expected] = [JSON.stringify(stored[name] ?? null), JSON.stringify(value ?? null)];
      if (found === expected) continue;
      this.report(12, `The ${what} has ${name} ${found}, but the audit record ${record.id} says ${expected}.`);
    }
  }

  /**
   * Compares a column with the last of the records that changed it, or with its earlier value if none did. Where services
   * with different clocks make changes, the last record need not be that of the last change.
   */
  compareChanged(what: string, changes: readonly AuditRow[], stored: Terms, name: string, earlier: Earlier): void {
    const own = changes.filter(({ after }) => after?.[name] !== undefined);
    const last = own.at(-1);
    if (last === undefined) {
      if (earlier.record !== undefined) this.compare(what, earlier.record, stored, { [name]: earlier.value });
      return;
    }
    const latest = own.filter(({ madeAtMs }) => madeAtMs >= last.madeAtMs - NEAR_MS);
    const found = JSON.stringify(stored[name] ?? null);
    if (latest.some(({ after }) => JSON.stringify(after?.[name] ?? null) === found)) return;
    this.compare(what, last, stored, { [name]: last.after?.[name] });
  }

  /** Compares a time with that of a record which two clocks, or two reads of one, may tell. */
  compareTime(what: string, record: AuditRow, atMs: number | null): void {
    if (atMs !== null && Math.abs(atMs - record.madeAtMs) <= NEAR_MS) return;
    this.report(12, `The ${what} has the time ${atMs}, but the audit record ${record.id} is of ${record.madeAtMs}.`);
  }
}

/** Time of a recorded text, in milliseconds since 1970; null if there is none. */
export function recordedTime(text: unknown): number | null {
  return typeof text === "string" ? Date.parse(text) : null;
}
