import { Accounts, PLAYGROUND_HOLDS_NOTHING } from "../admin/accounts.ts";
import { type AskedBooking, type Change, COMMAND_ACTOR } from "../admin/audit.ts";
import { AuditLog } from "../admin/audit-log.ts";
import { grantMismatch } from "../admin/references.ts";
import { makeId } from "../admin/token.ts";
import { loadStoreSettings, type StoreSettings } from "../config/store-settings.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { AuditRow, BookingAudit } from "../credits/audit.ts";
import type { BalanceRow, GrantOutcome } from "../credits/books.ts";
import { OperatorError } from "../errors.ts";
import { uuidV7 } from "../internals/ids.ts";
import { openStore } from "../stores/open.ts";
import type { Store } from "../stores/store.ts";
import { type CommonFlags, type Terminal, UnknownIdError } from "./command.ts";
import { isoTime } from "./times.ts";

/** What the commands on organizations, tokens and credits work with. */
export interface Workspace {
  config: StoreSettings;
  store: Store;
  accounts: Accounts;
  /** Prepares the audit entry of a change that the command makes elsewhere than in `accounts`. */
  changeAudit(change: Change): AuditRow;
  /** Prepares the audit entry of a booking; the decision adds the amount. */
  bookingAudit(asked: Omit<AskedBooking, "amountAs">): BookingAudit;
}

/**
 * Opens the store that the flags and the configuration name, beside a running service or without one. A store that is not
 * there is created only on request: in a wrong folder, all other commands change nothing.
 */
export async function withWorkspace<T>(
  terminal: Terminal,
  flags: CommonFlags,
  work: (workspace: Workspace) => Promise<T>,
  { creates = false }: { creates?: boolean } = {},
): Promise<T> {
  const config = await loadStoreSettings({ flags });
  const { clock, random } = terminal;
  const store = await openStore({ ...config, role: "command", creates, clock });
  try {
    const newId = () => uuidV7(clock());
    const accounts = new Accounts({ rows: store.accounts, clock, random, newId, actor: COMMAND_ACTOR });
    const audit = new AuditLog({ rows: store.admin, clock, newId });
    const changeAudit = (change: Change) => audit.changeBy(COMMAND_ACTOR, change);
    const bookingAudit = (asked: Omit<AskedBooking, "amountAs">) =>
      audit.bookingBy(COMMAND_ACTOR, { ...asked, amountAs: "text" });
    return await work({ config, store, accounts, changeAudit, bookingAudit });
  } finally {
    await store.close();
  }
}

/** The balance with every grant applied that has taken effect or lapsed. */
export async function freshBalance(
  { store }: Workspace,
  { clock }: Terminal,
  organizationId: string,
): Promise<BalanceRow> {
  const balance = await store.books.balance(organizationId);
  if (balance === undefined) throw unknownOrganization(organizationId);
  if (balance.nextChangeAtMs === null || balance.nextChangeAtMs > clock()) return balance;
  const [outcome] = await store.books.apply("durable", [{ kind: "refresh", organizationId }]);
  if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
  return outcome.balance;
}

export interface GrantRequest {
  organizationId: string;
  amount: MicroCredits;
  expiresAtMs: number | null;
  reference: string | null;
}

/** That an organization can hold credits: it is there, and not the playground. */
export async function expectCredited(accounts: Accounts, id: string): Promise<void> {
  const organization = await accounts.organization(id);
  if (organization === undefined) throw unknownOrganization(id);
  if (organization.kind === "playground") throw new OperatorError(PLAYGROUND_HOLDS_NOTHING);
}

/** Grants credits from now on; the same reference of an organization grants once, and with other terms is refused. */
export async function grantCredits(
  { store, accounts, bookingAudit }: Workspace,
  { random }: Terminal,
  request: GrantRequest,
): Promise<Extract<GrantOutcome, { outcome: "granted" }>> {
  const grant = { kind: "grant" as const, grantId: makeId("grant", random), effectiveAtMs: null, priority: 0 };
  const { organizationId, amount, expiresAtMs, reference } = request;
  await expectCredited(accounts, organizationId);
  const after = { amount, expiresAt: isoTime(expiresAtMs), reference };
  const audit = bookingAudit({ action: "credits.grant", after });
  const [outcome] = await store.books.apply("durable", [{ ...grant, ...request, audit }]);
  if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
  if (outcome.outcome === "reference_mismatch") throw new OperatorError(grantMismatch(reference, outcome.first));
  return outcome;
}

export function unknownOrganization(id: string): OperatorError {
  return new UnknownIdError("organization", id, "org list");
}

export function unknownToken(id: string): OperatorError {
  return new UnknownIdError("token", id, "token list");
}
