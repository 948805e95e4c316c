import type { SqlDialect, StatementBatch, StoreDriver } from "./driver.ts";
import { deleteSome, raw, type Sql, sql } from "./sql.ts";
import type { Table, TableShape } from "./table.ts";

const IDS_A_PAGE = 500;

type WriteOptions = Partial<Pick<StatementBatch, "isDurable" | "isDroppable">>;

type RowTemplate<Result> = (...query: Parameters<typeof sql>) => Promise<Result>;

/** The database as the queries use it. */
export interface Database extends SqlDialect, Pick<StoreDriver, "find" | "snapshot"> {
  /** Returns the template of a read that runs as `find` does, and returns its rows as those of a table. */
  findRows<Row extends object>(table: Table<Row>): RowTemplate<Row[]>;
  /** Returns the template of such a read that returns its first row. */
  findRow<Row extends object>(table: Table<Row>): RowTemplate<Row | undefined>;
  /** Runs one read in a snapshot, without waiting for writes. */
  read<Row extends object>(query: Sql): Promise<Row[]>;
  /** Returns the template of a read that runs as `read` does, and returns its rows as those of a table. */
  readRows<Row extends object>(table: Table<Row>): RowTemplate<Row[]>;
  /** Counts the rows of a table, or those that meet a condition, as `read` does. */
  count(rows: Sql): Promise<number>;
  /** Deletes rows of a table that meet a condition, at most `limit`, as `write` does; returns their number. */
  remove(table: TableShape, condition: Sql, limit: number, options?: WriteOptions): Promise<number>;
  /** Yields the ids of the organizations that meet a condition, in their order, without reading the rows, as `read` does. */
  organizationIds(condition?: Sql): AsyncGenerator<string>;
  /** Runs writes in one transaction, in their order; returns the number of rows that each changed. Durable by default. */
  write(statements: readonly Sql[], options?: WriteOptions): Promise<number[]>;
  /** Runs writes in one durable transaction if each of the `required` ones changes a row. Returns whether they were written. */
  writeIf(required: readonly Sql[], rest: readonly Sql[]): Promise<boolean>;
}

/** Position and length of a page of rows, in the order of their ids. */
export interface IdPage {
  /** Id of the last row seen. */
  after: string | null;
  limit: number;
}

/** Builds the queries' view of a database over its driver. Its methods fail as `StoreDriver` says. */
export function databaseOver(driver: StoreDriver): Database {
  const write: Database["write"] = async (statements, { isDurable = true, isDroppable = false } = {}) =>
    (await driver.run({ required: [], rest: statements, isDurable, isDroppable })) ?? [];
  return {
    ...driver.dialect,
    find: (query) => driver.find(query),
    findRows: rowsBy((query) => driver.find(query)),
    findRow: (table) => {
      const rows = rowsBy((query) => driver.find(query))(table);
      return async (...query) => (await rows(...query))[0];
    },
    async read<Row extends object>(query: Sql) {
      const [rows = []] = await driver.snapshot([query]);
      return rows as Row[];
    },
    readRows: rowsBy(async (query) => (await driver.snapshot([query])).flat()),
    async count(rows) {
      const [[row] = []] = await driver.snapshot([sql`select count(*) as count from ${rows}`]);
      return Number(row?.count);
    },
    async *organizationIds(condition = raw("1 = 1")) {
      for (let after = ""; ; ) {
        const wanted = sql`id > ${after} and ${condition} order by id limit ${IDS_A_PAGE}`;
        const [rows = []] = await driver.snapshot([sql`select id from organization where ${wanted}`]);
        for (const { id } of rows) yield id as string;
        if (rows.length < IDS_A_PAGE) return;
        after = rows.at(-1)?.id as string;
      }
    },
    write,
    async remove(table, condition, limit, options) {
      // Checked again: another process may have changed a row since it was found.
      const [removed = 0] = await write([sql`${deleteSome(table, condition, limit)} and ${condition}`], options);
      return removed;
    },
    async writeIf(required, rest) {
      return (await driver.run({ required, rest, isDurable: true, isDroppable: false })) !== undefined;
    },
    snapshot: (queries) => driver.snapshot(queries),
  };
}

function rowsBy(run: StoreDriver["find"]): Database["findRows"] {
  return (table) =>
    async (...query) =>
      (await run(sql(...query))).map(table.fromRecord);
}

/** Splits a list into lists of at most `size` items. */
export function listsOf<T>(items: readonly T[], size: number): T[][] {
  const chunks: T[][] = [];
  for (let at = 0; at < items.length; at += size) chunks.push(items.slice(at, at + size));
  return chunks;
}
