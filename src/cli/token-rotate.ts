import type { Command } from "commander";
import { OperatorError } from "../errors.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { facts } from "./table.ts";
import { durationFlag, isoTime } from "./times.ts";
import { unknownToken, withWorkspace } from "./workspace.ts";

export function addTokenRotate(token: Command, terminal: Terminal): void {
  addCommand(token, "rotate <id>", "Replace an access token by a new one with the same rights and lifetime, once")
    .option("--overlap <duration>", "how long the old one goes on working; 0 for not at all", "1h")
    .option("--replace", "if the token was rotated and its successor never used, revoke that one and create another")
    .action(async (id: string, flags: CommonFlags & { overlap: string; replace?: boolean }) => {
      const overlapMs = durationFlag("--overlap", flags.overlap);
      await withWorkspace(terminal, flags, async ({ accounts }) => {
        const rotated = await accounts.rotateToken(id, overlapMs, flags);
        if (rotated.outcome === "unknown_token") throw unknownToken(id);
        if (rotated.outcome === "ended") {
          const { revokedAtMs, expiresAtMs } = rotated.row;
          const end =
            revokedAtMs === null ? `expired at ${isoTime(expiresAtMs)}` : `revoked at ${isoTime(revokedAtMs)}`;
          throw new OperatorError(`token: found ${id}, ${end}; allowed: a token that still works`);
        }
        if (rotated.outcome === "already_rotated") {
          const { successorId, isUsed } = rotated;
          const hint = isUsed
            ? `${successorId} was used; rotate it instead`
            : `${successorId} was never used; add --replace to create another in its place`;
          throw new OperatorError(`token: ${id} was already rotated, its successor is ${successorId}. ${hint}`);
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
