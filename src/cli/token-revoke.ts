import type { Command } from "commander";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { isoTime } from "./times.ts";
import { unknownToken, withWorkspace } from "./workspace.ts";

export function addTokenRevoke(token: Command, terminal: Terminal): void {
  addCommand(token, "revoke <id>", "End an access token, within 1 s on one node and within 5 s on every node").action(
    async (id: string, flags: CommonFlags) => {
      await withWorkspace(terminal, flags, async ({ accounts }) => {
        const ended = await accounts.revokeToken(id);
        if (ended.outcome === "unknown_token") throw unknownToken(id);
        const revokedAt = isoTime(ended.row.revokedAtMs);
        print(terminal, flags, {
          json: { id, revokedAt, repeated: ended.repeated },
          text: ended.repeated ? `${id} was revoked before, at ${revokedAt}.` : `${id} is revoked.`,
        });
      });
    },
  );
}
