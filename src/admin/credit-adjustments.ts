import type { Allowance, Booking } from "../api/admin/credits.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import { creditsFromMicro, creditsOf, type MicroCredits } from "../credits/amount.ts";
import type { AuditRow } from "../credits/audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  CreditTransition,
  GrantTransition,
  RevokeTransition,
} from "../credits/books.ts";
import { createAllowance, endAllowance, findAllowance } from "../ledger/allowances.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { AllowanceRows } from "../stores/store.ts";
import { adjustmentMismatch, allowanceMismatch, grantMismatch } from "./references.ts";

export interface CreditDeskOptions {
  ledger: Pick<Ledger, "grant" | "revoke" | "credit">;
  allowances: AllowanceRows;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** A new id, such as `grant_…`. */
  makeId: (kind: string) => string;
}

type Terms<Transition, Given extends keyof Transition> = Omit<Transition, "kind" | Given>;

type Refused<Outcome extends string> = Outcome extends string ? { outcome: Outcome } : never;
/** The reference is taken; the message says by what. */
interface ReferenceMismatch {
  outcome: "reference_mismatch";
  message: string;
}
export type Booked<Refusal extends string> =
  | { outcome: "booked"; booking: Booking }
  | ReferenceMismatch
  | Refused<Refusal>;

/** What an operator books by hand: grants, revocations, credits, and allowances that grant every month. */
export class CreditDesk {
  readonly #options: CreditDeskOptions;

  constructor(options: CreditDeskOptions) {
    this.#options = options;
  }

  async grant(terms: Terms<GrantTransition, "grantId">): Promise<Booked<"unknown_organization">> {
    const { ledger, makeId } = this.#options;
    const outcome = await ledger.grant({ ...terms, grantId: makeId("grant") });
    if (outcome.outcome === "reference_mismatch") {
      return { outcome: "reference_mismatch", message: grantMismatch(terms.reference, outcome.first) };
    }
    if (outcome.outcome !== "granted") return outcome;
    const { grantId: id, balance, repeated } = outcome;
    return bookingOf({ id, amount: terms.amount, balance, repeated });
  }

  /** Takes back credits that are neither spent nor held; `excessive` names the most that can be taken, in credits. */
  async revoke(
    terms: Terms<RevokeTransition, "adjustmentId">,
  ): Promise<Booked<"unknown_organization" | "unknown_grant"> | { outcome: "excessive"; most: number }> {
    const { ledger, makeId } = this.#options;
    const outcome = await ledger.revoke({ ...terms, adjustmentId: makeId("adjustment") });
    if (outcome.outcome === "excessive") return { outcome: "excessive", most: creditsFromMicro(outcome.most) };
    if (outcome.outcome === "reference_mismatch") return refusedReference(terms, outcome.first);
    if (outcome.outcome !== "revoked") return outcome;
    const { adjustment, balance, repeated } = outcome;
    return bookingOf({ id: adjustment.id, amount: adjustment.amount, balance, repeated });
  }

  async credit(
    terms: Terms<CreditTransition, "adjustmentId" | "priority">,
  ): Promise<Booked<"unknown_organization" | "missing"> | { outcome: "excessive"; most: number }> {
    const { ledger, makeId } = this.#options;
    const outcome = await ledger.credit({ ...terms, priority: 0, adjustmentId: makeId("credit") });
    if (outcome.outcome === "excessive") return { outcome: "excessive", most: creditsFromMicro(outcome.most) };
    if (outcome.outcome === "reference_mismatch") return refusedReference(terms, outcome.first);
    if (outcome.outcome !== "credited") return outcome;
    const { adjustment, balance, repeated } = outcome;
    return bookingOf({ id: adjustment.id, amount: adjustment.amount, balance, repeated });
  }

  async allowances(organizationId: string, after: string | null, limit: number): Promise<Allowance[]> {
    return (await this.#options.allowances.list({ organizationId, after, limit })).map(toAllowance);
  }

  /**
   * Grants every month from a time on, and at once where that has come; once for a reference of an organization. `auditOf`
   * makes the audit entry, which is written with the allowance.
   */
  async createAllowance(
    terms: Pick<AllowanceRow, "organizationId" | "amount" | "lapses" | "reference"> & { anchorAtMs: number | null },
    auditOf: (allowance: Pick<AllowanceRow, "id" | "anchorAtMs">) => AuditRow,
  ): Promise<{ outcome: "created"; allowance: Allowance; repeated: boolean } | ReferenceMismatch> {
    const { allowances, ledger, clock, makeId } = this.#options;
    const nowMs = clock();
    const wanted = { ...terms, id: makeId("allowance"), anchorAtMs: terms.anchorAtMs ?? nowMs, createdAtMs: nowMs };
    const grant = (first: GrantTransition) => ledger.grant(first);
    const made = await createAllowance({ allowances, grant }, wanted, auditOf(wanted));
    if (made.outcome === "reference_mismatch") {
      return { outcome: "reference_mismatch", message: allowanceMismatch(terms.reference, made.row) };
    }
    return { outcome: "created", allowance: toAllowance(made.row), repeated: made.repeated };
  }

  /** Ends an allowance; the current month's grant stays. `audit` is written with the end. Undefined for an allowance that the organization does not have. */
  async endAllowance(
    organizationId: string,
    id: string,
    audit: AuditRow,
  ): Promise<{ allowance: Allowance; repeated: boolean } | undefined> {
    const { allowances, ledger, clock } = this.#options;
    const found = await findAllowance(allowances, organizationId, id);
    if (found === undefined) return undefined;
    const grant = (next: GrantTransition) => ledger.grant(next);
    const revoke = (revocation: RevokeTransition) => ledger.revoke(revocation);
    const { row, repeated } = await endAllowance({ allowances, grant, revoke }, found, clock(), audit);
    return { allowance: toAllowance(row), repeated };
  }
}

function refusedReference({ reference }: { reference: string | null }, first: AdjustmentRow): ReferenceMismatch {
  return { outcome: "reference_mismatch", message: adjustmentMismatch(reference, first) };
}

interface Done {
  id: string;
  amount: MicroCredits;
  balance: BalanceRow;
  repeated: boolean;
}

function bookingOf({ id, amount, balance, repeated }: Done): { outcome: "booked"; booking: Booking } {
  const { organizationId } = balance;
  const credits = creditsOf(balance);
  const common = { object: "booking", organization_id: organizationId } as const;
  return { outcome: "booked", booking: { ...common, id, amount: creditsFromMicro(amount), repeated, credits } };
}

function toAllowance(row: AllowanceRow): Allowance {
  return {
    object: "allowance",
    id: row.id,
    organization_id: row.organizationId,
    amount: creditsFromMicro(row.amount),
    lapses: row.lapses,
    reference: row.reference,
    begins_at: isoTime(row.anchorAtMs),
    next_at: isoTime(row.nextAtMs),
    ended_at: row.endedAtMs === null ? null : isoTime(row.endedAtMs),
    created_at: isoTime(row.createdAtMs),
  };
}

function isoTime(timeMs: number): string {
  return new Date(timeMs).toISOString();
}
