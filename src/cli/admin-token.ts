import type { Command } from "commander";
import { replaceAdminToken } from "../admin/admin-tokens.ts";
import { COMMAND_ACTOR } from "../admin/audit.ts";
import { uuidV7 } from "../internals/ids.ts";
import { removeAdminToken } from "./admin-token-file.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { facts } from "./table.ts";
import { isoTime } from "./times.ts";
import { withWorkspace } from "./workspace.ts";

export function addAdminToken(admin: Command, terminal: Terminal): void {
  addCommand(
    admin,
    "token",
    "Make a new admin token, shown once; earlier ones and the sessions that they began end",
  ).action(async (flags: CommonFlags) => {
    await withWorkspace(terminal, flags, async ({ config, store }) => {
      const { clock, random } = terminal;
      const options = { rows: store.admin, clock, random, newId: () => uuidV7(clock()) };
      const { row, token } = await replaceAdminToken(options, COMMAND_ACTOR);
      removeAdminToken(config.dataDir);
      print(terminal, flags, {
        json: { id: row.id, token, createdAt: isoTime(row.createdAtMs) },
        text: facts({ id: row.id, token }),
      });
    });
  });
}
