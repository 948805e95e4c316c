import type { Command } from "commander";
import { creditsFromMicro } from "../credits/amount.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { table } from "./table.ts";
import { isoTime } from "./times.ts";
import { unknownOrganization, withWorkspace } from "./workspace.ts";

export function addTokenList(token: Command, terminal: Terminal): void {
  addCommand(token, "list", "List the access tokens, the oldest first, without their secrets")
    .option("--org <id>", "only those of this organization")
    .action(async (flags: CommonFlags & { org?: string }) => {
      await withWorkspace(terminal, flags, async ({ accounts }) => {
        if (flags.org !== undefined && (await accounts.organization(flags.org)) === undefined) {
          throw unknownOrganization(flags.org);
        }
        const json = (await accounts.tokens(flags.org ?? null)).map((row) => ({
          id: row.id,
          organizationId: row.organizationId,
          name: row.name,
          prefix: row.prefix,
          scopes: row.scopes,
          models: row.models,
          createdAt: isoTime(row.createdAtMs),
          expiresAt: isoTime(row.expiresAtMs),
          revokedAt: isoTime(row.revokedAtMs),
          successorId: row.successorId,
          cap: row.budget && creditsFromMicro(row.budget.cap),
          creditsHeld: row.budget && creditsFromMicro(row.budget.held),
          creditsUsed: row.budget && creditsFromMicro(row.budget.spent),
        }));
        const rows = json.map((row) => [
          row.id,
          row.organizationId,
          row.name,
          `${row.prefix}…`,
          row.revokedAt === null ? (row.expiresAt ?? "never") : `revoked ${row.revokedAt}`,
          row.cap === null ? "-" : `${row.creditsUsed} of ${row.cap}, ${row.creditsHeld} held`,
          row.scopes.join(" "),
        ]);
        print(terminal, flags, {
          json,
          text: table(["ID", "ORGANIZATION", "NAME", "TOKEN", "ENDS", "CAP", "SCOPES"], rows),
        });
      });
    });
}
