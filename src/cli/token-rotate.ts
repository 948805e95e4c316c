import type { Command } from "commander";
import { OperatorError } from "../errors.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { facts } from "./table.ts";
import { durationFlag, isoTime } from "./times.ts";
import { unknownToken, withWorkspace } from "./workspace.ts";

export function addTokenRotate(token: Command, terminal: Terminal): void {
  addCommand(token, "rotate <id>", "Replace an access token by a new one with the same rights and length of life")
    .option("--overlap <duration>", "how long the old one goes on working; 0 for not at all", "1h")
    .action(async (id: string, flags: CommonFlags & { overlap: string }) => {
      const overlapMs = durationFlag("--overlap", flags.overlap);
      await withWorkspace(terminal, flags, async ({ accounts }) => {
        const rotated = await accounts.rotateToken(id, overlapMs);
        if (rotated.outcome === "unknown_token") throw unknownToken(id);
        if (rotated.outcome === "ended") {
          const { revokedAtMs, expiresAtMs } = rotated.row;
          const end =
            revokedAtMs === null ? `expired at ${isoTime(expiresAtMs)}` : `revoked at ${isoTime(revokedAtMs)}`;
          throw new OperatorError(`token: found ${id}, ${end}; allowed: a token that still works`);
        }
        const { row, predecessor } = rotated;
        const expiresAt = isoTime(row.expiresAtMs);
        const oldExpiresAt = isoTime(predecessor.expiresAtMs);
        print(terminal, flags, {
          json: {
            id: row.id,
            token: rotated.token,
            scopes: row.scopes,
            expiresAt,
            replaces: { id, expiresAt: oldExpiresAt },
          },
          text: facts({
            id: row.id,
            token: rotated.token,
            scopes: row.scopes.join(", "),
            expires: expiresAt ?? "never",
            replaces: `${id}, which works until ${oldExpiresAt}`,
          }),
        });
      });
    });
}
