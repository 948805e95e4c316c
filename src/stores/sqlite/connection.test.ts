import { copyFileSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, test } from "vitest";
import { LOG_BYTES, lengthenLog } from "./connection.ts";

let folder: string;
let path: string;
let database: DatabaseSync;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "tollgate-log-"));
  path = join(folder, "books.db");
  database = new DatabaseSync(path);
  database.exec("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE entry (id INTEGER)");
});

afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true });
});

const insert = (from: number, to: number) => {
  for (let id = from; id < to; id += 1) database.prepare("INSERT INTO entry VALUES (?)").run(id);
};
const lengthen = (roomLeastBytes: number) => {
  database.exec("BEGIN IMMEDIATE");
  lengthenLog(path, roomLeastBytes);
  database.exec("COMMIT");
};
const size = () => statSync(`${path}-wal`).size;

/** Returns the number of rows that another process finds from the files alone, as after a crash. */
function recovered(): number {
  const copy = join(folder, "copy.db");
  for (const end of ["", "-wal"]) copyFileSync(`${path}${end}`, `${copy}${end}`);
  const beside = new DatabaseSync(copy);
  const row = beside.prepare("SELECT count(*) AS count FROM entry").get();
  beside.close();
  return Number(row?.count);
}

test("writes before and after the extension survive a crash, and the log is extended once", () => {
  insert(0, 20);
  lengthen(0);
  const lengthened = size();
  expect(lengthened).toBeGreaterThanOrEqual(LOG_BYTES);
  expect(recovered()).toBe(20);
  insert(20, 50);
  lengthen(0);
  expect(size()).toBe(lengthened);
  expect(recovered()).toBe(50);
});

test("a log on a disk with little room is not extended", () => {
  insert(0, 20);
  const before = size();
  lengthen(Number.MAX_SAFE_INTEGER);
  expect(size()).toBe(before);
});
