import { timeOfId } from "../credits/request-id.ts";
import { OperatorError } from "../errors.ts";
import { AUDIT_ENTRY } from "./admin-schema.ts";
import { ALL_TABLES } from "./all-tables.ts";
import type { Cell } from "./fields.ts";
import { ADJUSTMENT, CONVERSATION, KEY, REQUEST, RESPONSE_ITEM, USAGE_DAY } from "./schema.ts";
import { join, raw, type Sql, sql } from "./sql.ts";
import type { TableShape } from "./table.ts";

/** One side of a copy of a whole store. Nothing but the copy writes to its destination. */
export interface CopySide {
  /** Lets all later reads see the same moment, until the side is closed. */
  beginSnapshot(): Promise<void>;
  /** Returns rows as cells, with integers as bigint. */
  read(query: Sql): Promise<Cell[][]>;
  /** Runs one statement. */
  run(query: Sql): Promise<void>;
  /** Inserts rows, with cells in the order of the table's columns. Leaves rows unchanged whose key exists. */
  insert(table: TableShape, rows: readonly Cell[][]): Promise<void>;
  close(): Promise<void>;
}

/** A table whose rows never change, with the column that shows which of them are new. */
interface AppendOnly {
  table: TableShape;
  timeColumn: string;
  /** A row that is inserted at a time has a value of its time column that is at most this much earlier. */
  marginMs: number;
}

const HOUR_MS = 3_600_000;
/** A store's clock may be set back by an hour. A day of usage is added up when it is over. */
const APPEND_ONLY: readonly AppendOnly[] = [
  { table: REQUEST, timeColumn: "ended_at", marginMs: HOUR_MS },
  { table: ADJUSTMENT, timeColumn: "made_at", marginMs: HOUR_MS },
  { table: AUDIT_ENTRY, timeColumn: "made_at", marginMs: HOUR_MS },
  { table: CONVERSATION, timeColumn: "ended_at", marginMs: HOUR_MS },
  { table: USAGE_DAY, timeColumn: "day", marginMs: 72 * HOUR_MS },
];
const PAGE_ROWS = 1_000;
/** Tables with long texts: a page of them must fit into memory. */
const SHORT_PAGES = new Map<string, number>([
  [CONVERSATION.name, 20],
  [RESPONSE_ITEM.name, 5],
  [KEY.name, 100],
]);

const ALL = sql`1 = 1`;

/** Restricts an append-only table to rows that may be newer than a copy of it; all rows if there is none. */
function isNewer({ timeColumn, marginMs }: AppendOnly, copiedAtMs: number | undefined): Sql | undefined {
  return copiedAtMs === undefined ? undefined : sql`${raw(timeColumn)} >= ${copiedAtMs - marginMs}`;
}

/** Copies rows from one side to the other. */
export class StoreCopy {
  readonly #from: CopySide;
  readonly #to: CopySide;

  constructor(from: CopySide, to: CopySide) {
    this.#from = from;
    this.#to = to;
  }

  /**
   * Copies the tables whose rows never change, while a service may write to the source. Reads only newer rows of a table that
   * was copied before. `done` is called after each table, with a time to find newer rows by.
   */
  async copyAhead(
    nowMs: number,
    copiedAtMs: ReadonlyMap<string, number>,
    done: (table: string, copiedAtMs: number) => Promise<void>,
  ): Promise<void> {
    for (const appendOnly of APPEND_ONLY) {
      const { name } = appendOnly.table;
      await this.#copyRows(appendOnly.table, isNewer(appendOnly, copiedAtMs.get(name)) ?? ALL);
      await done(name, nowMs);
    }
  }

  /**
   * Makes the destination equal to a snapshot of the source. Of tables that were copied before, it copies newer rows, and
   * repairs those of organizations that differ, for example because rows were removed since. Resolves with the number of rows
   * of each table. Rejects with OperatorError if count and sums of any table and organization differ.
   */
  async complete(copiedAtMs: ReadonlyMap<string, number> = new Map()): Promise<Record<string, number>> {
    await this.#from.beginSnapshot();
    const counts: Record<string, number> = {};
    for (const table of ALL_TABLES) {
      const appendOnly = APPEND_ONLY.find((candidate) => candidate.table === table);
      const earlier = appendOnly && isNewer(appendOnly, copiedAtMs.get(table.name));
      if (earlier === undefined) await this.#delete(table, ALL);
      await this.#copyRows(table, earlier ?? ALL);
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

  /** Reads the earliest time in the id of a request; undefined if there is none. */
  async firstRequestMs(): Promise<number | undefined> {
    const [row] = await this.#from.read(sql`select min(id) from request`);
    return timeOfId(String(row?.[0] ?? ""));
  }

  async #delete({ name }: TableShape, condition: Sql): Promise<void> {
    await this.#to.run(sql`delete from ${raw(name)} where ${condition}`);
  }

  /** Reads pages in the order of the key. */
  async #copyRows(table: TableShape, condition: Sql): Promise<void> {
    const limit = SHORT_PAGES.get(table.name) ?? PAGE_ROWS;
    const key = raw(table.key.join(", "));
    const positions = table.key.map((name) => table.columns.indexOf(name));
    const columns = raw(table.columns.join(", "));
    let last: Cell[] | undefined;
    for (;;) {
      const follows = last === undefined ? ALL : sql`(${key}) > (${join(last)})`;
      const rows = await this.#from.read(sql`
        select ${columns} from ${raw(table.name)}
        where ${follows} and ${condition} order by ${key} limit ${raw(limit)}`);
      if (rows.length > 0) await this.#to.insert(table, rows);
      if (rows.length < limit) return;
      last = positions.map((position) => rows.at(-1)?.[position] ?? null);
    }
  }

  /** Compares count and sums by organization. */
  async #compare(table: TableShape): Promise<{ differing: Group[]; rows: number }> {
    const query = sumsOf(table);
    // PostgreSQL works while SQLite blocks this process.
    const [made, wanted] = await Promise.all([this.#to.read(query), this.#from.read(query)]);
    const [madeSums, wantedSums] = [byGroup(made), byGroup(wanted)];
    const groups = new Set([...madeSums.keys(), ...wantedSums.keys()]);
    const differing = [...groups].filter((group) => madeSums.get(group) !== wantedSums.get(group));
    return { differing, rows: wanted.reduce((sum, [, count]) => sum + Number(count), 0) };
  }
}

/** An organization; null for rows of no organization. */
type Group = string | null;

function hasOrganization({ columns }: TableShape): boolean {
  return columns.includes("organization_id");
}

function isOfGroup(table: TableShape, group: Group): Sql {
  if (!hasOrganization(table)) return ALL;
  return group === null ? sql`organization_id is null` : sql`organization_id = ${group}`;
}

/**
 * Sums up a table by organization: the number of rows, and for each column its values, or their lengths. Integers are added
 * in two halves, because sums of 64-bit integers could be too large for one.
 */
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
