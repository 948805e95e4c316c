import { closeSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { COMMAND_ACTOR } from "../admin/audit.ts";
import { replaceAdminToken } from "../admin/sessions.ts";
import { isoTime } from "../api/time.ts";
import { uuidV7 } from "../internals/ids.ts";
import { facts } from "../operations/command.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { withWorkspace } from "./workspace.ts";

export function addAdmin(program: Command, terminal: Terminal): void {
  const admin = program.command("admin").description("administration of the service");
  addCommand(admin, "token", "Create a new admin token, shown once; earlier tokens and their sessions end").action(
    async (flags: CommonFlags) => {
      await withWorkspace(terminal, flags, async ({ config, store }) => {
        const { clock, random } = terminal;
        const options = { rows: store.admin, clock, random, newId: () => uuidV7(clock()) };
        const { row, token } = await replaceAdminToken(options, COMMAND_ACTOR);
        removeTokenFile(config.dataDir, "admin-token");
        print(terminal, flags, {
          json: { id: row.id, token, createdAt: isoTime(row.createdAtMs) },
          text: facts({ id: row.id, token }),
        });
      });
    },
  );
}

/** Files of the data directory for the tokens of the first start. */
type TokenFile = "admin-token" | "access-token";

/** Writes a token to a new file of the data directory, readable by its owner alone; returns its path. */
export function writeTokenFile(dataDir: string, name: TokenFile, token: string): string {
  const path = join(dataDir, name);
  rmSync(path, { force: true });
  // Exclusive, so that a file or link that was created meanwhile is not written through.
  const file = openSync(path, "wx", 0o600);
  try {
    writeSync(file, `${token}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  return path;
}

/** Removes the file of a token that has ended. Ignores failures, since that token is no longer valid. */
function removeTokenFile(dataDir: string, name: TokenFile): void {
  try {
    rmSync(join(dataDir, name), { force: true });
  } catch {
    // The directory may be missing or read-only.
  }
}
