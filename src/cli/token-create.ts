import type { Command } from "commander";
import { SCOPES } from "../api/principal.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import { addCommand, type CommonFlags, creditsFlag, print, type Terminal } from "./command.ts";
import { facts } from "./table.ts";
import { expiryFlag, isoTime } from "./times.ts";
import { unknownOrganization, withWorkspace } from "./workspace.ts";

interface Flags extends CommonFlags {
  org: string;
  name: string;
  scope?: string[];
  model?: string[];
  expires?: string;
  cap?: string;
}

export function addTokenCreate(token: Command, terminal: Terminal): void {
  addCommand(token, "create", "Create an access token; it is shown once")
    .requiredOption("--org <id>", "organization that the token belongs to")
    .option("--name <name>", "what to recognize it by", "unnamed")
    .option("--scope <scope...>", `permissions: ${SCOPES.join(", ")} (default: all but console:read)`)
    .option("--model <id...>", "models that it may use (default: all)")
    .option("--expires <when>", "when it ends: 30d, 12h, or a date (default: never)")
    .option("--cap <credits>", "credits that it may use in all (default: whatever the organization has)")
    .action(async (flags: Flags) => {
      const cap = flags.cap === undefined ? null : creditsFlag("--cap", flags.cap, { orNone: true });
      const expiresAtMs = flags.expires === undefined ? null : expiryFlag("--expires", flags.expires, terminal.clock());
      await withWorkspace(terminal, flags, async ({ accounts }) => {
        const made = await accounts.createToken({
          organizationId: flags.org,
          name: flags.name,
          scopes: flags.scope ?? null,
          models: flags.model ?? null,
          limits: null,
          expiresAtMs,
          cap,
        });
        if (made.outcome === "unknown_organization") throw unknownOrganization(flags.org);
        const { id, scopes } = made.row;
        const expiresAt = isoTime(expiresAtMs);
        print(terminal, flags, {
          json: { id, token: made.token, scopes, expiresAt, ...(cap !== null && { cap: creditsFromMicro(cap) }) },
          text: facts({
            id,
            token: made.token,
            scopes: scopes.join(", "),
            expires: expiresAt ?? "never",
            ...(cap !== null && { cap: `${formatCredits(cap)} credits` }),
          }),
        });
      });
    });
}
