import { resolve } from "node:path";
import type { Command } from "commander";
import { eventOf } from "../credits/warnings.ts";
import { facts } from "../operations/command.ts";
import { migrateStore, openStore } from "../stores/open.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { addStoreCopy } from "./store-copy.ts";
import { addStoreRestore } from "./store-restore.ts";
import { booksText, expectStore, verifyCopy } from "./store-verification.ts";
import { printStore, storeSettings } from "./workspace.ts";

const HOUR_MS = 3_600_000;

export function addStore(program: Command, terminal: Terminal): void {
  const store = program.command("store").description("the database");
  addCommand(
    store,
    "backup <file>",
    "Copy the store into a new SQLite file and verify the copy; the service may be running",
  ).action(async (file: string, flags: CommonFlags) => {
    const path = resolve(file);
    const copy = await backUp(terminal, flags, path).catch(async (error: unknown) => {
      await warnOfBackup(terminal, flags, error);
      throw error;
    });
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

/** Writes an event of a backup that failed, once an hour. A store that cannot be used is reported by the backup itself. */
async function warnOfBackup({ clock }: Terminal, flags: CommonFlags, error: unknown): Promise<void> {
  const nowMs = clock();
  const reason = error instanceof Error ? error.message : String(error);
  const period = [Math.floor(nowMs / HOUR_MS)];
  const event = eventOf("backup.failed", { organizationId: null, nowMs, period }, { reason });
  try {
    const store = await openStore({ ...(await storeSettings(flags)), role: "command", creates: false, clock });
    await store.events.insertEvents([event]).finally(() => store.close());
  } catch {
    // A store that cannot be opened takes no event.
  }
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
