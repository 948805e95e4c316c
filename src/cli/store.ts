import { resolve } from "node:path";
import type { Command } from "commander";
import { facts } from "../operations/command.ts";
import { migrateStore } from "../stores/open.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { addStoreCopy } from "./store-copy.ts";
import { addStoreRestore } from "./store-restore.ts";
import { booksText, expectStore, verifyCopy } from "./store-verification.ts";
import { printStore, storeSettings } from "./workspace.ts";

export function addStore(program: Command, terminal: Terminal): void {
  const store = program.command("store").description("the database");
  addCommand(
    store,
    "backup <file>",
    "Copy the store into a new SQLite file and verify the copy; the service may be running",
  ).action(async (file: string, flags: CommonFlags) => {
    const path = resolve(file);
    const copy = await backUp(terminal, flags, path);
    try {
      const found = await verifyCopy(terminal, flags, { database: null, dataDir: copy.directory });
      copy.keep();
      const { ok, violations } = found;
      const text = facts({ file: path, size: `${copy.bytes} bytes`, books: booksText(found) });
      print(terminal, flags, { json: { ...found, file: path, bytes: copy.bytes }, text });
      if (ok) return;
      terminal.exitWith(1);
      terminal.error(`tollgate: the backup is whole, but its books do not balance: ${violations[0]?.message}`);
    } finally {
      copy.discard();
    }
  });
  addMigrate(store, terminal);
  addStoreCopy(store, terminal);
  addStoreRestore(store, terminal);
}

function addMigrate(store: Command, terminal: Terminal): void {
  const description = "Create the store, or migrate its schema; services of the earlier version may be running";
  addCommand(store, "migrate", description).action(async (flags: CommonFlags) => {
    const { clock } = terminal;
    const place = await storeSettings(flags);
    const { from, to } = await migrateStore({ ...place, clock });
    await printStore(terminal, place, from === 0);
    const migrated = from === 0 ? "created" : `migrated from ${from}`;
    const text = `schema  ${to}, ${from === to ? "nothing to do" : migrated}`;
    print(terminal, flags, { json: { ok: true, from: from === 0 ? null : from, to }, text });
  });
}

/** Copies the configured store into a database in the folder of a backup. */
async function backUp(terminal: Terminal, flags: CommonFlags, path: string) {
  const { database, dataDir } = await storeSettings(flags);
  // A missing store and one of another version are refused before anything is copied.
  await expectStore(terminal, { database, dataDir });
  await printStore(terminal, { database, dataDir });
  const { copyDatabase, makeDatabase } = await import("../stores/sqlite/backup.ts");
  if (database === null) return copyDatabase(dataDir, path);
  const { copyFromPostgres } = await import("../stores/transfer.ts");
  return makeDatabase(path, (to) => copyFromPostgres(database, to));
}
