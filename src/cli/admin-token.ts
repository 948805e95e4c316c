import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { replaceAdminToken } from "../admin/operators.ts";
import { isoTime } from "../api/time.ts";
import { command, facts } from "../operations/command.ts";
import type { Workspace } from "./workspace.ts";

export const createAdminToken = command({
  usage: "admin token",
  summary: "Create a new admin token, shown once; the tokens of all operators and their sessions end",
  flags: {},
  async run(workspace: Workspace) {
    const { row, token } = await replaceAdminToken(workspace, workspace.actor);
    try {
      rmSync(join(workspace.config.dataDir, "admin-token"), { force: true });
    } catch {
      // The directory may be missing or read-only, and the token in the file has ended.
    }
    const { id, createdAtMs } = row;
    return { json: { id, token, createdAt: isoTime(createdAtMs) }, text: facts({ id, token }) };
  },
});

type TokenFile = "admin-token" | "access-token";

/** Writes a token to a new file of the data directory, readable by its owner alone; returns its path. */
export function writeTokenFile(dataDir: string, name: TokenFile, token: string): string {
  const path = join(dataDir, name);
  rmSync(path, { force: true });
  // Exclusive, so that a file or link that was created meanwhile is not written through.
  writeFileSync(path, `${token}\n`, { flag: "wx", mode: 0o600, flush: true });
  return path;
}
