import type { AllowanceRow } from "../credits/allowance.ts";
import type { GrantTransition, RevokeTransition } from "../credits/books.ts";
import { UnknownIdError } from "../errors.ts";
import { closeAllowance, findAllowance } from "../ledger/allowances.ts";
import { argument, command, text } from "./command.ts";
import { type CreditCore, notFound, rowRecord } from "./core.ts";
import { allowanceAnswer, allowanceJson } from "./list-allowances.ts";
import { operation } from "./operation.ts";

export const endAllowance = operation({
  route: "DELETE /organizations/:id/allowances/:allowance_id",
  permission: "credits:write",
  summary: "End an allowance; the current month's grant stays",
  answer: { status: 200, description: "The allowance as it is now.", schema: (s) => s.Allowance },
  async handle(services, { params: { id, allowance_id = "" } }) {
    return allowanceAnswer((await stopAllowance(services, id, allowance_id)).row);
  },
  commands: [
    command({
      usage: "credits allowance end <id>",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const { row, repeated } = await stopAllowance(services, null, id);
        const json = { ...allowanceJson(row), repeated };
        return { json, text: repeated ? `${id} had ended before, at ${json.endedAt}.` : `${id} has ended.` };
      },
    }),
  ],
});

/** Ends an allowance of an organization (null: of any); the current month's grant stays. Rejects with not_found. */
export async function stopAllowance(
  core: CreditCore,
  organizationId: string | null,
  id: string,
): Promise<{ row: AllowanceRow; repeated: boolean }> {
  const { allowances, bookings } = core;
  const found = await findAllowance(allowances, organizationId, id);
  if (found === undefined) throw notFound(new UnknownIdError("allowance", id, "credits allowance list"));
  const grant = (next: GrantTransition) => bookings.grant(next);
  const revoke = (revocation: RevokeTransition) => bookings.revoke(revocation);
  return closeAllowance({ allowances, grant, revoke }, found, core.clock(), rowRecord(core, "allowance.end", found));
}
