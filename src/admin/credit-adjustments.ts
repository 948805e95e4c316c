import { isoTime } from "../api/time.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import { creditsFromMicro, formatCredits, type MicroCredits } from "../credits/amount.ts";
import type { BookingAudit } from "../credits/audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  CreditTransition,
  GrantTransition,
  RevokeTransition,
} from "../credits/books.ts";
import type { GrantTerms } from "../credits/outcomes.ts";
import { createAllowance, endAllowance, findAllowance } from "../ledger/allowances.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { AccountRows } from "../stores/queries/accounts.ts";
import type { AllowanceRows } from "../stores/queries/allowances.ts";
import { type Actor, type AuditTime, auditRow } from "./audit.ts";
import { makeId, type RandomBytes } from "./token.ts";

export interface CreditAdjustmentsOptions extends AuditTime {
  /** Books one transition: the ledger of a running service, or the books of a store. */
  bookings: Pick<Ledger, "grant" | "revoke" | "credit">;
  accounts: Pick<AccountRows, "organization">;
  allowances: AllowanceRows;
  random: RandomBytes;
}

type RequestOf<Transition> = Omit<Transition, "kind" | "grantId" | "adjustmentId" | "priority" | "audit">;
export type GrantRequest = RequestOf<GrantTransition> & Pick<GrantTransition, "priority">;
export type RevocationRequest = RequestOf<RevokeTransition> & Pick<RevokeTransition, "grantId">;
export type CreditRequest = RequestOf<CreditTransition>;
export interface AllowanceRequest extends Pick<AllowanceRow, "organizationId" | "amount" | "lapses" | "reference"> {
  /** Null: now. */
  anchorAtMs: number | null;
}

export interface Booked {
  outcome: "booked";
  id: string;
  amount: MicroCredits;
  balance: BalanceRow;
  /** True for the repetition of a reference: the values are those of the first booking. */
  repeated: boolean;
}

/** Why an adjustment of any kind is refused. */
export type AdjustmentRefusal =
  | { outcome: "unknown_organization" }
  /** The playground organization holds no credits. */
  | { outcome: "playground" }
  /** The reference was used with other terms, which the message names. */
  | { outcome: "reference_mismatch"; message: string };

/** The amount exceeds `most`. */
export interface ExcessiveAmount {
  outcome: "excessive";
  most: MicroCredits;
}

export const PLAYGROUND_HOLDS_NO_CREDITS = "The playground organization holds no credits.";

/**
 * Changes of an organization's credits by an operator: grants, revocations, credits (refunds), and allowances that grant
 * every month. The same reference again returns the first result; with other terms it is refused. The audit record is
 * written in the transaction of the change.
 */
export class CreditAdjustments {
  readonly #options: CreditAdjustmentsOptions;

  constructor(options: CreditAdjustmentsOptions) {
    this.#options = options;
  }

  async grant(request: GrantRequest, actor: Actor): Promise<Booked | AdjustmentRefusal> {
    const refusal = await this.#refusalOf(request.organizationId);
    if (refusal !== undefined) return refusal;
    const audit = this.#auditOf("credits.grant", request, actor);
    const grantId = makeId("grant", this.#options.random);
    const outcome = await this.#options.bookings.grant({ ...request, grantId, audit });
    if (outcome.outcome === "reference_mismatch") {
      return { outcome: "reference_mismatch", message: grantMismatch(request.reference, outcome.first) };
    }
    if (outcome.outcome !== "granted") return outcome;
    const { grantId: id, balance, repeated } = outcome;
    return { outcome: "booked", id, amount: request.amount, balance, repeated };
  }

  /** Revokes credits that are neither spent nor held; an amount of null revokes all that are available. */
  async revoke(
    request: RevocationRequest,
    actor: Actor,
  ): Promise<Booked | AdjustmentRefusal | ExcessiveAmount | { outcome: "unknown_grant" }> {
    const audit = this.#auditOf("credits.revoke", request, actor);
    const adjustmentId = makeId("adjustment", this.#options.random);
    const outcome = await this.#options.bookings.revoke({ ...request, adjustmentId, audit });
    if (outcome.outcome === "reference_mismatch") return mismatchOf(request.reference, outcome.first);
    return outcome.outcome === "revoked" ? bookedOf(outcome) : outcome;
  }

  /** Refunds credits that were spent, as goodwill or to correct the charge of a hold. */
  async credit(
    request: CreditRequest,
    actor: Actor,
  ): Promise<Booked | AdjustmentRefusal | ExcessiveAmount | { outcome: "missing" } | { outcome: "closed" }> {
    const audit = this.#auditOf("credits.credit", request, actor);
    const adjustmentId = makeId("credit", this.#options.random);
    const outcome = await this.#options.bookings.credit({ ...request, priority: 0, adjustmentId, audit });
    if (outcome.outcome === "reference_mismatch") return mismatchOf(request.reference, outcome.first);
    return outcome.outcome === "credited" ? bookedOf(outcome) : outcome;
  }

  /** Lists the allowances of an organization, in the order of their ids, from the one after `after` on. */
  allowances(organizationId: string, after: string | null, limit: number): Promise<AllowanceRow[]> {
    return this.#options.allowances.list({ organizationId, after, limit });
  }

  /** Grants credits every month from a time on, and at once if that time has come. */
  async createAllowance(
    request: AllowanceRequest,
    actor: Actor,
  ): Promise<{ outcome: "created"; row: AllowanceRow; repeated: boolean } | AdjustmentRefusal> {
    const { organizationId, amount, lapses, reference } = request;
    const refusal = await this.#refusalOf(organizationId);
    if (refusal !== undefined) return refusal;
    const { allowances, bookings, clock, random } = this.#options;
    const nowMs = clock();
    const anchorAtMs = request.anchorAtMs ?? nowMs;
    const wanted = { ...request, id: makeId("allowance", random), anchorAtMs, createdAtMs: nowMs };
    const subject = { organizationId, subjectId: wanted.id };
    const after = { amount: creditsFromMicro(amount), lapses, reference, begins_at: isoTime(anchorAtMs) };
    const change = { action: "allowance.create" as const, ...subject, after };
    const grant = (first: GrantTransition) => bookings.grant(first);
    const made = await createAllowance({ allowances, grant }, wanted, auditRow(actor, change, this.#options));
    if (made.outcome === "created") return made;
    return { outcome: "reference_mismatch", message: allowanceMismatch(reference, made.row) };
  }

  /** Ends an allowance of an organization (null: of any); the current month's grant stays. Undefined: there is none. */
  async endAllowance(
    organizationId: string | null,
    id: string,
    actor: Actor,
  ): Promise<{ row: AllowanceRow; repeated: boolean } | undefined> {
    const { allowances, bookings, clock } = this.#options;
    const found = await findAllowance(allowances, organizationId, id);
    if (found === undefined) return undefined;
    const change = { action: "allowance.end" as const, organizationId: found.organizationId, subjectId: id };
    const grant = (next: GrantTransition) => bookings.grant(next);
    const revoke = (revocation: RevokeTransition) => bookings.revoke(revocation);
    const audit = auditRow(actor, change, this.#options);
    return endAllowance({ allowances, grant, revoke }, found, clock(), audit);
  }

  async #refusalOf(organizationId: string): Promise<AdjustmentRefusal | undefined> {
    const organization = await this.#options.accounts.organization(organizationId);
    if (organization === undefined) return { outcome: "unknown_organization" };
    return organization.kind === "playground" ? { outcome: "playground" } : undefined;
  }

  /** Prepares the audit record of a booking. The ledger adds the booked amount. */
  #auditOf(action: `credits.${string}`, request: RecordedRequest, actor: Actor): BookingAudit {
    const { id: actorId, kind: actorKind, address, requestId } = actor;
    return { id: this.#options.newId(), actorKind, actorId, address, requestId, action, after: termsOf(request) };
  }
}

type RecordedRequest = { amount: MicroCredits | null } & Partial<
  Omit<GrantRequest & RevocationRequest & CreditRequest, "amount">
>;

/** Returns the terms that a request states, named as in the admin API. */
function termsOf(request: RecordedRequest): Record<string, unknown> {
  const { amount, grantId, holdId, effectiveAtMs, expiresAtMs, priority, reference, note } = request;
  const terms = {
    all: amount === null ? true : null,
    grant_id: grantId,
    hold_id: holdId,
    effective_at: isoTime(effectiveAtMs ?? null),
    expires_at: isoTime(expiresAtMs ?? null),
    priority,
    reference,
    note,
  };
  return Object.fromEntries(Object.entries(terms).filter(([, value]) => value !== null && value !== undefined));
}

function bookedOf(outcome: { adjustment: AdjustmentRow; balance: BalanceRow; repeated: boolean }): Booked {
  const { adjustment, balance, repeated } = outcome;
  return { outcome: "booked", id: adjustment.id, amount: adjustment.amount, balance, repeated };
}

function grantMismatch(reference: string | null, first: GrantTerms): string {
  const { id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs } = first;
  const start = effectiveAtMs === createdAtMs ? "" : `, in effect from ${isoTime(effectiveAtMs)}`;
  const rank = priority === 0 ? "" : `, with priority ${priority}`;
  const terms = `${formatCredits(amount)} credits${start}, ${expiryOf(expiresAtMs)}${rank}`;
  return mismatch(reference, `grant ${id} of ${terms}`, createdAtMs);
}

function mismatchOf(reference: string | null, first: AdjustmentRow): AdjustmentRefusal {
  const { kind, id, amount, isAll, grantId, holdId, expiresAtMs, madeAtMs } = first;
  const credits = `${formatCredits(amount)} credits`;
  const request = holdId === null ? "" : ` for the request ${holdId}`;
  const all = isAll ? ", everything that was available," : "";
  const source = grantId === null ? "" : ` from ${grantId}`;
  const earlier =
    kind === "credit"
      ? `credit ${id} of ${credits}${request}, ${expiryOf(expiresAtMs)}`
      : `revocation ${id} of ${credits}${all}${source}`;
  return { outcome: "reference_mismatch", message: mismatch(reference, earlier, madeAtMs) };
}

function allowanceMismatch(reference: string | null, first: AllowanceRow): string {
  const { id, amount, lapses, anchorAtMs, createdAtMs } = first;
  const rest = lapses ? "expires" : "stays";
  const terms = `${formatCredits(amount)} credits a month from ${isoTime(anchorAtMs)}, of which the rest ${rest}`;
  return mismatch(reference, `allowance ${id} of ${terms}`, createdAtMs);
}

function mismatch(reference: string | null, first: string, madeAtMs: number): string {
  const text = JSON.stringify(reference);
  return `The reference ${text} was used with other terms: ${first}, made at ${isoTime(madeAtMs)}. Use another reference.`;
}

function expiryOf(expiresAtMs: number | null): string {
  return expiresAtMs === null ? "without expiry" : `expiring at ${isoTime(expiresAtMs)}`;
}
