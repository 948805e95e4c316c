import { resolve } from "node:path";
import type { Command } from "commander";
import { loadStoreSettings } from "../config/sources.ts";
import { OperatorError } from "../errors.ts";
import { verifyBooks } from "../ledger/verify.ts";
import { migrateStore, openStore } from "../stores/open.ts";
import { addCommand, type CommonFlags, facts, print, type Terminal } from "./command.ts";
import { organizationIds } from "./ledger.ts";

export function addStore(program: Command, terminal: Terminal): void {
  const store = program.command("store").description("the database");
  addCommand(
    store,
    "backup <file>",
    "Copy the SQLite store into a new file and verify the copy; the service may be running",
  ).action(async (file: string, flags: CommonFlags) => {
    const { database, dataDir } = await loadStoreSettings({ flags });
    if (database !== null) {
      throw new OperatorError("The store is a PostgreSQL database: back it up with PostgreSQL's own pg_dump.");
    }
    const path = resolve(file);
    // A missing store and one of another version are refused before anything is copied.
    await expectStore(terminal, dataDir);
    const { copyDatabase } = await import("../stores/sqlite/backup.ts");
    const copy = await copyDatabase(dataDir, path);
    try {
      const found = await verifyCopy(terminal, copy.directory);
      copy.keep();
      const { ok, organizations, holds, events, violations } = found;
      const json = { ok, file: path, bytes: copy.bytes, organizations, holds, events, violations };
      const books = ok ? "they balance" : "they do not balance";
      const text = facts({
        file: path,
        size: `${copy.bytes} bytes`,
        books: `${books}: ${organizations} organizations, ${holds} holds, ${events} charges`,
      });
      print(terminal, flags, { json, text });
      if (ok) return;
      terminal.exitWith(1);
      terminal.error(`tollgate: the backup is whole, but its books do not balance: ${violations[0]?.message}`);
    } finally {
      copy.discard();
    }
  });
  addMigrate(store, terminal);
}

function addMigrate(store: Command, terminal: Terminal): void {
  const description = "Create the store, or migrate its schema; services of the earlier version may be running";
  addCommand(store, "migrate", description).action(async (flags: CommonFlags) => {
    const { clock } = terminal;
    const { from, to } = await migrateStore({ ...(await loadStoreSettings({ flags })), clock });
    const migrated = from === 0 ? "created" : `migrated from ${from}`;
    const text = `schema  ${to}, ${from === to ? "nothing to do" : migrated}`;
    print(terminal, flags, { json: { ok: true, from: from === 0 ? null : from, to }, text });
  });
}

/** Rejects with OperatorError where there is no store, or one of another version. */
async function expectStore({ clock }: Terminal, dataDir: string): Promise<void> {
  const store = await openStore({ database: null, dataDir, role: "command", creates: false, clock });
  await store.close();
}

async function verifyCopy({ clock }: Terminal, dataDir: string) {
  const store = await openStore({ database: null, dataDir, role: "command", creates: false, clock });
  try {
    return await verifyBooks(store.books, organizationIds(store));
  } finally {
    await store.close();
  }
}
