import { MICRO_PER_CREDIT } from "../credits/amount.ts";
import type { CreditCore } from "../operations/core.ts";
import { grantCredits } from "../operations/credits.ts";
import { addOrganization } from "../operations/organizations.ts";
import { addToken } from "../operations/tokens.ts";
import type { OrganizationRow } from "../stores/queries/accounts.ts";
import type { Store } from "../stores/store.ts";

/** Credits that the first start grants, to try the service with. */
export const FIRST_CREDITS = 100n;

export interface FirstRunServices {
  store: Pick<Store, "admin" | "directory">;
  /** Acts as the service itself. */
  core: CreditCore;
}

/** Finds the oldest organization of a store, or creates it with credits and a token. One process at a time may call it. */
export async function ensureFirstOrganization(services: FirstRunServices) {
  const page = await services.core.accounts.organizations({ after: null, limit: 3 });
  const [first, other] = page.filter(({ kind }) => kind === "standard");
  if (first !== undefined && (other !== undefined || !(await isUnfinished(services, first)))) {
    return { organization: first, isOnlyOne: other === undefined, token: null };
  }
  const organization = first ?? (await addOrganization(services.core, "default"));
  return { organization, isOnlyOne: true, token: await finish(services.core, organization.id) };
}

/** Returns true where a first run ended before its last step, the grant, and so has shown no token. */
async function isUnfinished({ store }: FirstRunServices, { id }: OrganizationRow): Promise<boolean> {
  const one = { organizationId: id, before: null, limit: 1 };
  if ((await store.directory.grants(one)).length > 0) return false;
  const [making] = await store.admin.audit({ ...one, action: "organization.create" });
  return making?.actorKind === "service";
}

/** Creates the token and then the grant: an organization with a grant is finished. */
async function finish(core: CreditCore, organizationId: string): Promise<string> {
  const { token } = await addToken(core, { organizationId, name: "first token" });
  await grantCredits(core, {
    organizationId,
    amount: FIRST_CREDITS * MICRO_PER_CREDIT,
    reference: "first-start",
  });
  return token;
}
