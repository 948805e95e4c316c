import type { Accounts } from "../accounts/accounts.ts";
import { makeId, type RandomBytes } from "../accounts/token.ts";
import { MICRO_PER_CREDIT } from "../credits/amount.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { AccountRows, OrganizationRow } from "../stores/store.ts";

/** What the first start grants, so that there is something to try the service with. */
export const FIRST_CREDITS = 100n;

export interface FirstRunServices {
  rows: AccountRows;
  accounts: Accounts;
  ledger: Pick<Ledger, "grant">;
  random: RandomBytes;
}

export interface Standing {
  /** The first organizations, guests aside; empty: none could be told apart as the first. */
  organization: OrganizationRow;
  /** Whether there are others. */
  isOnlyOne: boolean;
  /** The token made on the first run: the one moment when it can be shown. */
  token: string | null;
}

/** Finds the organizations of a store; in an empty one makes the first, with credits and a token. */
export async function firstRun(services: FirstRunServices): Promise<Standing> {
  const page = await services.rows.organizations({ after: null, limit: 3 });
  const [organization, other] = page.filter(({ kind }) => kind === "standard");
  if (organization !== undefined) return { organization, isOnlyOne: other === undefined, token: null };
  const made = await services.accounts.createOrganization("default");
  await services.ledger.grant({
    organizationId: made.id,
    grantId: makeId("grant", services.random),
    amount: FIRST_CREDITS * MICRO_PER_CREDIT,
    effectiveAtMs: null,
    expiresAtMs: null,
    priority: 0,
    reference: "first-start",
  });
  const draft = { organizationId: made.id, name: "first token", scopes: null, models: null };
  const token = await services.accounts.createToken({ ...draft, limits: null, expiresAtMs: null, cap: null });
  if (token.outcome !== "created") throw new Error(`The organization ${made.id} is gone as soon as it was made`);
  return { organization: made, isOnlyOne: true, token: token.token };
}
