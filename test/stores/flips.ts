import { expect, test } from "vitest";
import { verifyBooks } from "../../src/ledger/verify.ts";
import { ISSUER_KEYS } from "../../src/stores/admin-schema.ts";
import { ALL_TABLES } from "../../src/stores/all-tables.ts";
import type { Violation } from "../../src/stores/queries/verify-report.ts";
import { LATENCY_DAY, REQUEST } from "../../src/stores/schema.ts";
import type { Store } from "../../src/stores/store.ts";
import type { TableShape } from "../../src/stores/table.ts";
import { COUNTS, countOf, seedOfRun } from "../support/counts.ts";
import { HOUR_MS, type Subject } from "./fixture.ts";
import { populate } from "./populated.ts";
import { UNSEEN } from "./unseen.ts";

const FAR_MS = 400 * 24 * HOUR_MS;
const TIME = /(_at|^day)$/;

type Cells = Record<string, unknown>;

/** Other values of the same form: of a charge, those with another number in one place. */
function flipsOf(table: TableShape, column: string, cell: unknown): unknown[] {
  if (column !== "charge") return [flipOf(table, column, cell)];
  return [...String(cell).matchAll(/\d+/g)].map(({ 0: number, index }) => {
    return `${String(cell).slice(0, index)}${BigInt(number) + 1n}${String(cell).slice(index + number.length)}`;
  });
}

/** Another value of the same form. A time moves by 400 days. */
function flipOf(table: TableShape, column: string, cell: unknown): unknown {
  const values = table.rules.find(([name]) => name === column)?.[3];
  if (values !== undefined)
    return values.map((value) => (typeof value === "bigint" ? Number(value) : value)).find((value) => value !== cell);
  const kind = table.kinds[column];
  if (kind === "bytea") return new Uint8Array(32);
  if (kind === "bigint") {
    if (TIME.test(column)) return cell === null ? Date.now() : Number(cell) + FAR_MS;
    // The next number belongs to another statement.
    return cell === null ? 1 : Number(cell) + (column === "number" ? 1_000 : 1);
  }
  if (cell === null) return isJson(column) ? '{"flipped":1}' : "flipped";
  return isJson(column) ? JSON.stringify(flipJson(JSON.parse(String(cell)))) : `${cell}0`;
}

const JSON_COLUMNS = [
  "limits",
  "scopes",
  "models",
  "draws",
  "details",
  "metadata",
  "attempts",
  "pinned",
  "keys",
  "retry",
  "card",
  "covers",
  "first_tokens",
  "durations",
];
const isJson = (column: string) =>
  [...JSON_COLUMNS, "settlement", "before", "after", "written_rows", "warn_at"].includes(column);

/** Changes the first value that is neither an object nor a list. */
function flipJson(value: unknown): unknown {
  if (Array.isArray(value)) return value.length === 0 ? ["flipped"] : [flipJson(value[0]), ...value.slice(1)];
  if (typeof value === "object" && value !== null) {
    const [[name, first] = ["flipped", 0], ...rest] = Object.entries(value);
    return Object.fromEntries([[name, flipJson(first)], ...rest]);
  }
  if (typeof value === "number") return value + 1;
  return typeof value === "string" ? `${value}0` : "flipped";
}

class Rows {
  readonly #subject: Subject;
  readonly #table: TableShape;

  constructor(subject: Subject, table: TableShape) {
    this.#subject = subject;
    this.#table = table;
  }

  read(): Promise<Cells[]> {
    const order = this.#table.key.join(", ");
    const names = this.#table.columns.map((column) => `"${column}"`).join(", ");
    return this.#subject.read(`select ${names} from ${this.#table.name} order by ${order}`);
  }

  /** Changes a column of a row while `work` runs. */
  async with<T>(row: Cells, column: string, value: unknown, work: () => Promise<T>): Promise<T> {
    await this.#update({ ...row }, column, value);
    try {
      return await work();
    } finally {
      await this.#update({ ...row, [column]: value }, column, row[column]);
    }
  }

  #update(row: Cells, column: string, value: unknown): Promise<void> {
    const key = this.#table.key.map((name) => `"${name}" = ${this.#literal(name, row[name])}`);
    const set = `"${column}" = ${this.#literal(column, value)}`;
    return this.#subject.tamper(`update ${this.#table.name} set ${set} where ${key.join(" and ")}`);
  }

  #literal(column: string, value: unknown): string {
    if (value === null || value === undefined) return "null";
    if (this.#table.kinds[column] === "bigint") return String(value);
    const hex = value instanceof Uint8Array ? Buffer.from(value).toString("hex") : String(value).replace(/^\\x/, "");
    if (this.#table.kinds[column] === "bytea")
      return this.#subject.store.kind === "sqlite" ? `x'${hex}'` : `'\\x${hex}'`;
    return `'${String(value).replaceAll("'", "''")}'`;
  }
}

async function violationsOf({ books }: Subject): Promise<Violation[]> {
  return (await verifyBooks(books, undefined)).violations;
}

/** Leaves out the playground, which every store has without a record. */
function isOf(row: Cells): boolean {
  return [row.id, row.organization_id].every((id) => id !== "org_playground");
}

const SEED = seedOfRun();

/** On PostgreSQL a run that does not change all rows changes one column in so many. */
const COLUMNS_OF_POSTGRES = 3;

/**
 * Returns the rows in which a column is changed. SQLite plays all. On PostgreSQL a verification takes many times as long, and
 * the checks are the same: each run changes other columns in other rows.
 */
function rowsToChange(kind: Store["kind"], rows: readonly Cells[], columnIndex: number): Cells[] {
  if (kind === "sqlite") return [...rows];
  if (countOf("changes") === COUNTS.changes.tests && (SEED + columnIndex) % COLUMNS_OF_POSTGRES !== 0) return [];
  const from = (SEED + columnIndex) % rows.length;
  return [...rows.slice(from), ...rows.slice(0, from)].slice(0, countOf("changes"));
}

/** Needs a store of its own, because it also damages what all organizations share. */
export function flipCases(subject: Subject): void {
  let populated: Promise<string> | undefined;
  const organization = () => (populated ??= populate(subject));

  test("a store with rows in every table and state has no violations", async () => {
    await organization();
    expect(await violationsOf(subject)).toEqual([]);
  });

  test.each(ALL_TABLES.map((table) => [table.name, table] as const))(
    "each change of a column of %s is found, apart from those that nothing shows",
    async (name, table) => {
      await organization();
      const rows = new Rows(subject, table);
      const found = (await rows.read()).filter((row) => isOf(row));
      expect(found.length).toBeGreaterThan(0);
      const isUnseen = async (column: string, index: number) => {
        for (const row of rowsToChange(subject.store.kind, found, index)) {
          for (const flip of flipsOf(table, column, row[column])) {
            const violations = await rows.with(row, column, flip, () => violationsOf(subject));
            // Other rows would prove nothing more of the column.
            if (violations.length === 0) return true;
          }
        }
        return false;
      };
      const unseen: string[] = [];
      for (const [index, column] of table.columns.entries()) if (await isUnseen(column, index)) unseen.push(column);
      const known = Object.keys(UNSEEN[name] ?? {});
      expect(
        unseen.filter((column) => !known.includes(column)),
        `seed ${SEED}`,
      ).toEqual([]);
      // A column whose change is found in most rows is unseen in one that may have been left out.
      if (subject.store.kind === "sqlite" || countOf("changes") >= Math.max(2, found.length))
        expect(unseen.sort()).toEqual(known.sort());
      expect(await violationsOf(subject)).toEqual([]);
    },
    120_000,
  );

  test("a provider cost that changed since its day was summed up is found", async () => {
    const rows = new Rows(subject, REQUEST);
    await organization();
    const summed = (await rows.read()).filter(({ provider_cost: cost }) => String(cost) === "2500000000");
    expect(summed).toHaveLength(1);
    const message = expect.stringContaining("are not those of its requests");
    for (const value of [2_500_000_001, null]) {
      const found = await rows.with(summed[0] ?? {}, "provider_cost", value, () => violationsOf(subject));
      expect(found.map(({ invariant, message: text }) => [invariant, text])).toEqual(found.map(() => [14, message]));
      // By model, route, token and time to the first token.
      expect(found).toHaveLength(4);
    }
  });

  forgeryCase(subject, organization);
  malformedCase(subject, organization);
}

function forgeryCase(subject: Subject, organization: () => Promise<string>): void {
  test("a forged grant is found, although all sums agree", async () => {
    const of = `organization_id = '${await organization()}'`;
    const raise = (by: number) =>
      subject.tamper(`update balance set granted = granted + ${by}, available = available + ${by} where ${of}`);
    const columns =
      "organization_id, source, amount, revoked, remaining, is_used_up, state, effective_at, priority, created_at";
    const copied = columns.replace(" revoked, remaining, is_used_up", " 0, amount, 0");
    const like = `select ${copied}, 'grant_forged' from credit_grant where ${of} and source = 'grant' and reference is null and state = 'active'`;
    await subject.tamper(`insert into credit_grant (${columns}, id) ${like} limit 1`);
    const [{ amount } = { amount: 0 }] = await subject.read(
      "select amount from credit_grant where id = 'grant_forged'",
    );
    await raise(Number(amount));
    const message = expect.stringContaining("The row grant_forged of the table credit_grant has no audit record");
    expect(await violationsOf(subject)).toMatchObject([{ invariant: 12, message }]);
    await subject.tamper("delete from credit_grant where id = 'grant_forged'");
    await raise(-Number(amount));
    expect(await violationsOf(subject)).toEqual([]);
  });
}

function malformedCase(subject: Subject, organization: () => Promise<string>): void {
  test("each malformed row is a violation of its own, and hides no other", async () => {
    const organizationId = await organization();
    const unread = ["conversation", "response_item", "refusal", "refusal_day"];
    const tables = ALL_TABLES.filter(({ name }) => !unread.includes(name));
    for (const table of tables) {
      const rows = new Rows(subject, table);
      const row = (await rows.read())
        .filter(isOf)
        .find((cells) => Object.keys(cells).some((name) => isText(name, cells)));
      if (row === undefined) continue;
      for (const column of table.columns.filter((name) => isText(name, row))) {
        const violations = await rows.with(row, column, "{", async () => {
          await subject.tamper(`update balance set expired = expired + 1 where organization_id = '${organizationId}'`);
          const found = await violationsOf(subject);
          await subject.tamper(`update balance set expired = expired - 1 where organization_id = '${organizationId}'`);
          return found;
        });
        const named = { table: table.name, id: expect.stringContaining(String(row[table.key.at(-1) ?? ""])) };
        // The keys of an issuer and the latencies of a model belong to no organization.
        const owner = [ISSUER_KEYS.name, LATENCY_DAY.name].includes(table.name) ? "*" : organizationId;
        const malformed = { invariant: 11, organizationId: owner, row: named };
        expect(violations).toContainEqual(expect.objectContaining(malformed));
        expect(violations).toContainEqual(expect.objectContaining({ invariant: 1, organizationId }));
      }
    }
  });
}

const isText = (column: string, cells: Cells) => (isJson(column) || column === "charge") && cells[column] !== null;
