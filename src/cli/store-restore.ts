import { join, resolve } from "node:path";
import type { Command } from "commander";
import type { Verification } from "../ledger/verify.ts";
import { facts } from "../operations/command.ts";
import { openStore } from "../stores/open.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { booksText, expectBooks } from "./store-verification.ts";
import { printStore, storeSettings } from "./workspace.ts";

export function addStoreRestore(store: Command, terminal: Terminal): void {
  addCommand(
    store,
    "restore <file>",
    "Put a backup into a data directory without a store, or into an empty PostgreSQL; stop the service first",
  ).action(async (file: string, flags: CommonFlags) => {
    const { database, dataDir } = await storeSettings(flags);
    const path = resolve(file);
    const found = await restore(terminal, flags, { path, database, dataDir });
    await printStore(terminal, { database, dataDir }, true);
    const text = facts({ restored: path, to: database === null ? dataDir : "PostgreSQL", books: booksText(found) });
    print(terminal, flags, { json: { ...found, file: path }, text });
  });
}

interface Restoration {
  /** The backup. */
  path: string;
  database: string | null;
  dataDir: string;
}

/** Restores a copy of the backup, which is migrated if it is from an older release. No service runs on the data directory. */
async function restore(
  terminal: Terminal,
  flags: CommonFlags,
  { path, database, dataDir }: Restoration,
): Promise<Verification> {
  const [directory, { copyBackup, makeDatabase }] = await Promise.all([
    import("../stores/sqlite/directory.ts"),
    import("../stores/sqlite/backup.ts"),
  ]);
  directory.createDataDirectory(dataDir);
  const unlock = directory.lockDirectory(dataDir);
  try {
    if (database === null) directory.expectNoDatabase(dataDir);
    const destination = database === null ? directory.databasePathOf(dataDir) : join(dataDir, "restore");
    const copy = await makeDatabase(destination, async (to) => copyBackup(path, to));
    try {
      const { clock } = terminal;
      const store = await openStore({ database: null, dataDir: copy.directory, role: "command", creates: true, clock });
      await store.close();
      if (database !== null) return await restorePostgres(terminal, flags, { path: copy.path, database, dataDir });
      const found = await expectBooks(terminal, flags, { database, dataDir: copy.directory });
      copy.keep();
      return found;
    } finally {
      copy.discard();
    }
  } finally {
    unlock();
  }
}

async function restorePostgres(
  terminal: Terminal,
  flags: CommonFlags,
  { path, database, dataDir }: Restoration & { database: string },
): Promise<Verification> {
  const { openTransferToPostgres } = await import("../stores/transfer.ts");
  const transfer = await openTransferToPostgres(path, database, terminal.clock);
  try {
    await transfer.complete();
    await transfer.analyze();
    const found = await expectBooks(terminal, flags, { database, dataDir, isCopyTarget: true });
    await transfer.markComplete();
    return found;
  } finally {
    await transfer.close();
  }
}
