import { isoTime } from "../api/time.ts";
import type { TokenRow } from "../stores/queries/accounts.ts";
import { argument, command, text } from "./command.ts";
import { type AccountCore, found, rowRecord } from "./core.ts";
import { operation } from "./operation.ts";
import { auditedToken, tokenRow } from "./token-terms.ts";

export const revokeToken = operation({
  route: "POST /tokens/:id/revoke",
  permission: "tokens:write",
  summary: "Revoke an access token; takes effect within 1 s on one node and within 5 s on all nodes",
  answer: { status: 200, description: "The token as it is now.", schema: (s) => s.Token },
  async handle(services, { params }) {
    await endToken(services, params.id);
    return found(services.directory.token(params.id));
  },
  commands: [
    command({
      usage: "token revoke <id>",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const { row, repeated } = await endToken(services, id);
        const revokedAt = isoTime(row.revokedAtMs);
        const text = repeated ? `${id} was revoked before, at ${revokedAt}.` : `${id} is revoked.`;
        return { json: { id, revokedAt, repeated }, text };
      },
    }),
  ],
});

/** Revokes a token at once. A repetition returns the first revocation. Rejects with not_found. */
export async function endToken(core: AccountCore, id: string): Promise<{ row: TokenRow; repeated: boolean }> {
  const old = await tokenRow(core, id);
  if (old.revokedAtMs !== null) return { row: old, repeated: true };
  const record = rowRecord(core, "token.revoke", old, { before: auditedToken(old) });
  const isRevoked = await core.accounts.revokeToken(id, core.clock(), record);
  return { row: await tokenRow(core, id), repeated: !isRevoked };
}
