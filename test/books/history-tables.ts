import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import type pg from "pg";

export type Row = Record<string, unknown>;

/** The tables of a store, beside the store itself. */
export interface Tables {
  read(table: string): Promise<Row[]>;
  add(table: string, rows: Row[]): Promise<unknown>;
}

export function tablesOfFile(database: DatabaseSync): Tables {
  return {
    read: async (table) => database.prepare(`SELECT * FROM ${table}`).all(),
    add: async (table, rows) => {
      const columns = Object.keys(rows[0] ?? {});
      const marks = columns.map(() => "?").join(", ");
      const insert = database.prepare(`INSERT INTO ${table} (${columns.join(", ")}) VALUES (${marks})`);
      database.exec("BEGIN IMMEDIATE");
      for (const row of rows) insert.run(...columns.map((column) => row[column] as SQLInputValue));
      database.exec("COMMIT");
    },
  };
}

export function tablesOfServer(client: pg.Client): Tables {
  const toJson = ({ hash, ...row }: Row) => (hash instanceof Uint8Array ? { ...row, hash: `\\x${hex(hash)}` } : row);
  return {
    read: async (table) => (await client.query(`SELECT * FROM ${table}`)).rows,
    add: (table, rows) => {
      const insert = `INSERT INTO ${table} SELECT * FROM json_populate_recordset(NULL::${table}, $1)`;
      return client.query(insert, [JSON.stringify(rows.map(toJson), withBigints)]);
    },
  };
}

const withBigints = (_: string, value: unknown) => (typeof value === "bigint" ? String(value) : value);
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
