import { dirname } from "node:path";
import { timeOfId } from "../credits/request-id.ts";
import { OperatorError } from "../errors.ts";
import { AUDIT_ENTRY, CONVERSATION, MONTHLY_STATEMENT, RESPONSE_ITEM } from "./admin-schema.ts";
import { ALL_TABLES } from "./all-tables.ts";
import type { CopySide } from "./driver.ts";
import type { Cell } from "./fields.ts";
import { makePartitionsBetween, openPostgresDestination, openPostgresSide } from "./postgres/copy-side.ts";
import { ADJUSTMENT, KEY, REQUEST, USAGE_DAY } from "./schema.ts";
import { join, raw, type Sql, sql } from "./sql.ts";
import { openSqliteSide } from "./sqlite/copy-side.ts";
import { openSqliteDriver } from "./sqlite/sqlite.ts";
import type { TableShape } from "./table.ts";

/** Partitions are created for so long ahead, as a service does. */
const AHEAD_MS = 62 * 86_400_000;

const HOUR_MS = 3_600_000;
/**
 * Tables whose rows never change: the column that shows which are new, and how much earlier its values may be than their
 * insertion. A store's clock may be set back by an hour. A day of usage is added up when it is over.
 */
const APPEND_ONLY = new Map<TableShape, [timeColumn: string, marginMs: number]>([
  [REQUEST, ["ended_at", HOUR_MS]],
  [ADJUSTMENT, ["made_at", HOUR_MS]],
  [AUDIT_ENTRY, ["made_at", HOUR_MS]],
  [CONVERSATION, ["ended_at", HOUR_MS]],
  [USAGE_DAY, ["day", 72 * HOUR_MS]],
]);
/** Values of a page of rows: SQLite takes 32,766 in one statement. */
const PAGE_CELLS = 16_000;
/** Tables with long texts: a page of them must fit into memory. */
const SHORT_PAGES = new Map<string, number>([
  [CONVERSATION.name, 20],
  [RESPONSE_ITEM.name, 5],
  [KEY.name, 100],
  [MONTHLY_STATEMENT.name, 50],
]);

const ALL = sql`1 = 1`;

class StoreCopy {
  readonly #from: CopySide;
  readonly #to: CopySide;
  readonly #copiedAtMs: Map<string, number>;

  constructor(from: CopySide, to: CopySide, copiedAtMs = new Map<string, number>()) {
    this.#from = from;
    this.#to = to;
    this.#copiedAtMs = copiedAtMs;
  }

  /** Copies the tables whose rows never change, or what is newer in them, while a service may write to the source. */
  async copyAhead(nowMs: number): Promise<void> {
    for (const table of APPEND_ONLY.keys()) {
      const { name } = table;
      await this.#copyRows(table, this.#isNewer(table) ?? ALL);
      await this.#to.run(sql`
        insert into incomplete_copy values (${name}, ${nowMs})
        on conflict (name) do update set copied_at = excluded.copied_at`);
      this.#copiedAtMs.set(name, nowMs);
    }
  }

  /**
   * Makes the destination equal to a snapshot of the source, and repairs organizations that differ. Resolves with the rows of
   * each table. Rejects with OperatorError if count and sums of any table and organization differ.
   */
  async complete(): Promise<Record<string, number>> {
    await this.#from.beginSnapshot();
    const counts: Record<string, number> = {};
    for (const table of ALL_TABLES) {
      const isNewer = this.#isNewer(table);
      if (isNewer === undefined) await this.#delete(table, ALL);
      await this.#copyRows(table, isNewer ?? ALL);
      const { differing, rows } = await this.#compare(table);
      const conditions = differing.map((group) => isOfGroup(table, group));
      for (const condition of conditions) await this.#delete(table, condition);
      for (const condition of conditions) await this.#copyRows(table, condition);
      const [different] = differing.length > 0 ? (await this.#compare(table)).differing : [];
      if (different !== undefined) throw new OperatorError(differs(table, different));
      counts[table.name] = rows;
    }
    return counts;
  }

  /** Restricts a table to rows that may be newer than a copy of it; undefined if it was not copied ahead. */
  #isNewer(table: TableShape): Sql | undefined {
    const [timeColumn = "", marginMs = 0] = APPEND_ONLY.get(table) ?? [];
    const copiedAtMs = this.#copiedAtMs.get(table.name);
    return copiedAtMs === undefined ? undefined : sql`${raw(timeColumn)} >= ${copiedAtMs - marginMs}`;
  }

  /** Reads the earliest time in the id of a request; undefined if there is none. */
  async firstRequestMs(): Promise<number | undefined> {
    const [row] = await this.#from.run(sql`select min(id) from request`);
    return timeOfId(String(row?.[0] ?? ""));
  }

  async #delete({ name }: TableShape, condition: Sql): Promise<void> {
    await this.#to.run(sql`delete from ${raw(name)} where ${condition}`);
  }

  async #copyRows(table: TableShape, condition: Sql): Promise<void> {
    const limit = SHORT_PAGES.get(table.name) ?? Math.floor(PAGE_CELLS / table.columns.length);
    const key = raw(table.key.join(", "));
    const positions = table.key.map((name) => table.columns.indexOf(name));
    const columns = raw(table.columns.join(", "));
    let last: Cell[] | undefined;
    for (;;) {
      const follows = last === undefined ? ALL : sql`(${key}) > (${join(last)})`;
      const rows = await this.#from.run(sql`
        select ${columns} from ${raw(table.name)}
        where ${follows} and ${condition} order by ${key} limit ${raw(limit)}`);
      const values = join(rows.map((row) => sql`(${join(row)})`));
      const insertion = sql`insert into ${raw(table.name)} (${columns}) values ${values} on conflict do nothing`;
      if (rows.length > 0) await this.#to.run(insertion);
      if (rows.length < limit) return;
      last = positions.map((position) => rows.at(-1)?.[position] ?? null);
    }
  }

  async #compare(table: TableShape): Promise<{ differing: Group[]; rows: number }> {
    const query = sumsOf(table);
    // PostgreSQL works while SQLite blocks this process.
    const [made, wanted] = await Promise.all([this.#to.run(query), this.#from.run(query)]);
    const [madeSums, wantedSums] = [byGroup(made), byGroup(wanted)];
    const groups = new Set([...madeSums.keys(), ...wantedSums.keys()]);
    const differing = [...groups].filter((group) => madeSums.get(group) !== wantedSums.get(group));
    return { differing, rows: wanted.reduce((sum, [, count]) => sum + Number(count), 0) };
  }
}

type Group = string | null;

function hasOrganization({ columns }: TableShape): boolean {
  return columns.includes("organization_id");
}

function isOfGroup(table: TableShape, group: Group): Sql {
  if (!hasOrganization(table)) return ALL;
  return group === null ? sql`organization_id is null` : sql`organization_id = ${group}`;
}

/** Sums up a table by organization: its rows, and of each column the values (in two halves, to fit 64 bits) or their lengths. */
function sumsOf(table: TableShape): Sql {
  const sums = table.columns.flatMap((name) => {
    const column = raw(name);
    if (table.kinds[name] !== "bigint") return [sql`sum(octet_length(${column}))`, sql`count(${column})`];
    return [sql`sum(${column} >> 32)`, sql`sum(${column} & 4294967295)`, sql`count(${column})`];
  });
  const group = hasOrganization(table) ? sql`organization_id` : sql`null`;
  const groups = hasOrganization(table) ? sql`group by organization_id` : sql``;
  return sql`select ${group}, count(*), ${join(sums)} from ${raw(table.name)} ${groups}`;
}

function byGroup(rows: readonly Cell[][]): Map<Group, string> {
  return new Map(rows.map(([group, ...sums]) => [group as Group, sums.join(" ")]));
}

function differs({ name }: TableShape, group: Group): string {
  const of = group === null ? "" : ` of the organization ${group}`;
  return `The copy differs from its source: the table ${name}${of} has other rows. Run the command again.`;
}

/** Copies a PostgreSQL store, as it is at one moment, into the empty file of a SQLite database in a folder of its own. */
export async function copyFromPostgres(url: string, databasePath: string): Promise<void> {
  const driver = await openSqliteDriver({ dataDir: dirname(databasePath), role: "command" });
  await driver.close();
  await using from = await openPostgresSide(url);
  await using to = openSqliteSide(databasePath, "write");
  await new StoreCopy(from, to).complete();
}

export type TransferToPostgres = Awaited<ReturnType<typeof openTransferToPostgres>>;

/** Opens a SQLite store, and an empty PostgreSQL or one with an incomplete copy. Rejects with OperatorError. */
export async function openTransferToPostgres(databasePath: string, url: string, clock: () => number) {
  await using opened = new AsyncDisposableStack();
  const to = opened.use(await openPostgresDestination(url));
  const from = opened.use(openSqliteSide(databasePath, "read"));
  const copied = await to.run(sql`select name, copied_at from incomplete_copy`);
  const copy = new StoreCopy(from, to, new Map(copied.map(([name, atMs]) => [String(name), Number(atMs)])));
  const analyze = async () => void (await to.run(sql`analyze`));
  const preparePartitions = async () => {
    const nowMs = clock();
    await makePartitionsBetween(to, (await copy.firstRequestMs()) ?? nowMs, nowMs + AHEAD_MS);
  };
  const sides = opened.move();
  return {
    /** Copies the rows that never change, while a service may write to the source. */
    async copyAhead(): Promise<void> {
      await preparePartitions();
      await copy.copyAhead(clock());
      await analyze();
    },
    /** Copies everything else while no service runs on the source, and compares both sides. Resolves with the rows of each. */
    async complete(): Promise<Record<string, number>> {
      await preparePartitions();
      return copy.complete();
    },
    /** Lets services start on the copy. Resolves when all of it is on the disk. */
    async markComplete(): Promise<void> {
      await to.run(sql`set synchronous_commit = on`);
      await to.run(sql`drop table incomplete_copy`);
    },
    /** Collects statistics: without them, PostgreSQL plans for small tables. */
    analyze,
    [Symbol.asyncDispose]: () => sides.disposeAsync(),
  };
}
