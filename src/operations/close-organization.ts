import { CLOSING_RESTS } from "../api/principal.ts";
import { ApiError } from "../errors.ts";
import { allowancesOf, stopAllowance } from "./allowances.ts";
import { argument, facts, required, text, wordOf } from "./command.ts";
import { allPages, type Core, found, unknownOrganization } from "./core.ts";
import { requireCredits, revokeCredits } from "./credits.ts";
import { sharedOperation } from "./operation.ts";
import { updateOrganization } from "./organizations.ts";
import { endToken } from "./tokens.ts";

const NOTES: Record<(typeof CLOSING_RESTS)[number], string> = {
  refunded: "Closed: the rest is refunded.",
  lapsed: "Closed: the rest lapses.",
};

export const closeOrganization = sharedOperation({
  route: "POST /organizations/:id/close",
  permission: "organizations:write",
  summary:
    "Close an organization for good: its tokens and allowances end, and what is left of its credits is revoked; a repetition revokes what came back since",
  body: (s) => s.OrganizationClosing,
  answer: { status: 200, description: "The organization as it is now.", schema: (s) => s.Organization },
  async handle(core, { params: { id }, body: { rest } }) {
    const organization = await core.accounts.organization(id);
    if (organization === undefined) throw unknownOrganization(id);
    if (organization.status !== "closed") {
      await requireCredits(core, id);
      await updateOrganization(core, id, { status: "paused", pausesAllowances: true });
      await expectNothingHeld(core, id);
      await endAllOf(core, id);
      await updateOrganization(core, id, { status: "closed", pausesAllowances: true });
    }
    await revokeRest(core, id, NOTES[rest]);
    return expectNothingHeld(core, id);
  },
  commands: (make) => [
    make.command({
      usage: "org close <id>",
      flags: {
        id: argument("<id>", text),
        rest: {
          ...required("--rest <rest>", `what becomes of its credits: ${CLOSING_RESTS.join(" or ")}`),
          read: (given: unknown, nowMs: number) => wordOf(CLOSING_RESTS)(String(given), "--rest", nowMs),
        },
      },
      text: ({ id, name, status, credits }) => facts({ id, name, status, available: credits.available }),
    }),
  ],
});

/** Returns an organization without running requests. Rejects with credits_held. */
async function expectNothingHeld({ directory }: Core, id: string) {
  const organization = await found(directory.organization(id));
  if (organization.credits.held === 0) return organization;
  const message = `Running requests hold ${organization.credits.held} of the organization's credits. It takes no new ones: close it again when they have ended.`;
  throw new ApiError("credits_held", message);
}

/** Ends the allowances and the tokens with a secret. Callers of an identity provider are refused by the state. */
async function endAllOf(core: Core, organizationId: string): Promise<void> {
  const allowances = await allPages((page) => allowancesOf(core, organizationId, page));
  for (const { id, ended_at } of allowances) if (ended_at === null) await stopAllowance(core, organizationId, id);
  const filter = { organizationId, createdBy: null, search: null, status: "active" } as const;
  for (const { id, kind } of await allPages((page) => core.directory.tokens({ ...filter, ...page }))) {
    if (kind === "secret") await endToken(core, id);
  }
}

async function revokeRest(core: Core, organizationId: string, note: string): Promise<void> {
  const revoke = (grantId: string | null) =>
    revokeCredits(core, { organizationId, amount: null, grantId, reference: null, note, isClosing: true });
  const grants = await allPages((page) => core.directory.grants({ organizationId, ...page }));
  for (const { id, state, amount, revoked } of grants) if (state === "pending" && revoked < amount) await revoke(id);
  // Read under the lock of the balance: every payment that is booked from now on finds the organization closed.
  const outcome = await core.book({ kind: "refresh", organizationId });
  if (outcome.outcome === "refreshed" && outcome.balance.available > 0n) await revoke(null);
}
