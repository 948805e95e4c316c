import { MICRO_PER_CREDIT } from "../credits/amount.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { OrganizationRow } from "../stores/queries/organizations.ts";
import type { Store } from "../stores/store.ts";
import type { Accounts } from "./accounts.ts";
import { makeId, type RandomBytes } from "./token.ts";

/** What the first start grants, so that there is something to try the service with. */
export const FIRST_CREDITS = 100n;

export interface FirstRunServices {
  store: Pick<Store, "accounts" | "admin" | "directory">;
  /** As the service itself. */
  accounts: Pick<Accounts, "createOrganization" | "createToken">;
  ledger: Pick<Ledger, "grant">;
  random: RandomBytes;
}

export interface Standing {
  /** The first organizations, guests aside; empty: none could be told apart as the first. */
  organization: OrganizationRow;
  /** Whether there are others. */
  isOnlyOne: boolean;
  /** The token made on the first run, or by the start that finished it: the one moment when it can be shown. */
  token: string | null;
}

/** Finds the organizations of a store; in an empty one makes the first, with credits and a token. For one process at a time. */
export async function firstRun(services: FirstRunServices): Promise<Standing> {
  const page = await services.store.accounts.organizations({ after: null, limit: 3 });
  const [first, other] = page.filter(({ kind }) => kind === "standard");
  if (first !== undefined && (other !== undefined || !(await isUnfinished(services, first)))) {
    return { organization: first, isOnlyOne: other === undefined, token: null };
  }
  const organization = first ?? (await services.accounts.createOrganization("default"));
  return { organization, isOnlyOne: true, token: await finish(services, organization.id) };
}

/** Whether a first run was ended before its last step, so that it has shown no token: its organization lacks the grant. */
async function isUnfinished({ store }: FirstRunServices, { id }: OrganizationRow): Promise<boolean> {
  const one = { organizationId: id, before: null, limit: 1 };
  if ((await store.directory.grants({ ...one, id: null })).length > 0) return false;
  const [making] = await store.admin.audit({ ...one, action: "organization.create" });
  return making?.actorKind === "service";
}

/** The grant comes last: where it stands, nothing is left to do. */
async function finish({ accounts, ledger, random }: FirstRunServices, organizationId: string): Promise<string> {
  const draft = { organizationId, name: "first token", scopes: null, models: null };
  const token = await accounts.createToken({ ...draft, limits: null, expiresAtMs: null, cap: null });
  if (token.outcome !== "created") throw new Error(`The organization ${organizationId} is gone as soon as it was made`);
  await ledger.grant({
    organizationId,
    grantId: makeId("grant", random),
    amount: FIRST_CREDITS * MICRO_PER_CREDIT,
    effectiveAtMs: null,
    expiresAtMs: null,
    priority: 0,
    reference: "first-start",
  });
  return token.token;
}
