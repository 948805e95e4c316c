import { auditRow } from "../admin/audit.ts";
import type { Booking } from "../api/admin/credits.ts";
import { isoTime } from "../api/time.ts";
import { auditedBooking, type BookedTerms } from "../credits/adjustments.ts";
import { creditsFromMicro, creditsOf, formatCredits, type MicroCredits, usageReport } from "../credits/amount.ts";
import type { BookingAudit } from "../credits/audit.ts";
import type { AdjustmentRow, BalanceRow } from "../credits/books.ts";
import type { AdjustmentMismatch } from "../credits/outcomes.ts";
import { ApiError, OperatorError } from "../errors.ts";
import { type CommandOutput, facts } from "./command.ts";
import { type Core, type CreditCore, unknownOrganization } from "./core.ts";
import type { OperationCall } from "./operation.ts";

/** Result of a grant, a revocation or a refund. */
export interface Booked {
  id: string;
  amount: MicroCredits;
  balance: BalanceRow;
  /** True for the repetition of a reference: the values are those of the first booking. */
  repeated: boolean;
}

/** The words of a command, which its errors repeat. */
export interface CommandWords {
  amount?: string | null;
  completion?: string | null;
}

/** Prepares the audit record of a booking, with the terms that a request states. The ledger adds the booked amount. */
export function bookingAudit(
  { actor, ...time }: CreditCore,
  action: `credits.${string}`,
  { amount, ...terms }: BookedTerms & { amount: MicroCredits | null },
): BookingAudit {
  const stated = Object.entries({ ...auditedBooking(terms), all: amount === null ? true : null });
  const after = Object.fromEntries(stated.filter(([, value]) => value !== null && value !== undefined));
  return { ...auditRow(actor, { action, organizationId: null, subjectId: null }, time), after };
}

/** Rejects for an unknown organization, and for the playground, which holds no credits. */
export async function requireCredits({ accounts }: Pick<Core, "accounts">, organizationId: string): Promise<void> {
  const organization = await accounts.organization(organizationId);
  if (organization === undefined) throw unknownOrganization(organizationId);
  if (organization.kind !== "playground") return;
  throw new ApiError("invalid_value", "The playground organization holds no credits.");
}

/** Returns the outcome of a revocation or a refund. Throws for the refusals that both have. */
export function acceptedOf<Outcome extends { outcome: string }>(
  { organizationId, reference }: Pick<AdjustmentRow, "organizationId" | "reference">,
  outcome: Outcome | AdjustmentMismatch | { outcome: "unknown_organization" },
): Exclude<Outcome, AdjustmentMismatch | { outcome: "unknown_organization" }> {
  if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
  if (outcome.outcome === "reference_mismatch") {
    const { first } = outcome as AdjustmentMismatch;
    throw referenceMismatch(reference, adjustmentText(first), first.madeAtMs);
  }
  return outcome as Exclude<Outcome, AdjustmentMismatch | { outcome: "unknown_organization" }>;
}

function adjustmentText({ kind, id, amount, isAll, grantId, holdId, expiresAtMs }: AdjustmentRow): string {
  const credits = `${formatCredits(amount)} credits`;
  if (kind === "credit") {
    const request = holdId === null ? "" : ` for the request ${holdId}`;
    return `credit ${id} of ${credits}${request}, ${expiryText(expiresAtMs)}`;
  }
  const all = isAll ? ", everything that was available," : "";
  return `revocation ${id} of ${credits}${all}${grantId === null ? "" : ` from ${grantId}`}`;
}

export function expiryText(expiresAtMs: number | null): string {
  return expiresAtMs === null ? "without expiry" : `expiring at ${isoTime(expiresAtMs)}`;
}

/** Returns the error for an amount above `most`. */
export function excessive(words: CommandWords, message: string, most: string): ApiError {
  const command = new OperatorError(`AMOUNT is ${JSON.stringify(words.amount)}, but must be at most ${most}.`);
  return new ApiError("invalid_value", message, { param: "amount", command });
}

/** Returns the error for a reference that was used with other terms. */
export function referenceMismatch(reference: string | null, first: string, madeAtMs: number): ApiError {
  const text = JSON.stringify(reference);
  const message = `The reference ${text} was used with other terms: ${first}, made at ${isoTime(madeAtMs)}. Use another reference.`;
  return new ApiError("reference_mismatch", message, { param: "reference" });
}

export function bookingAnswer({ connection }: Pick<OperationCall, "connection">, booked: Booked): Booking {
  const { id, amount, balance, repeated } = booked;
  if (repeated) connection.repeated();
  const { organizationId: organization_id } = balance;
  const credits = creditsOf(balance);
  return { object: "booking", organization_id, id, amount: creditsFromMicro(amount), repeated, credits };
}

/** Reports a booking as commands do. `done` is what an earlier command did under the same reference. */
export function bookingOutput(
  { id, amount, balance, repeated }: Booked,
  done: "granted" | "revoked" | "credited",
  { reference, expiresAtMs }: Pick<AdjustmentRow, "reference"> & { expiresAtMs?: number | null },
): CommandOutput {
  const { organization_id: organizationId, creditsTotal, creditsAvailable, creditsUsed } = usageReport(balance);
  const credits = creditsFromMicro(amount);
  const expires = expiresAtMs === undefined ? {} : { expiresAt: isoTime(expiresAtMs) };
  const left = { creditsTotal, creditsAvailable, ...(done === "credited" && { creditsUsed }) };
  const text = facts({
    id,
    amount: repeated ? `${credits}, ${done} before under this reference` : credits,
    ...(done === "granted" && { expires: expires.expiresAt ?? "never" }),
    credits: `${creditsAvailable} of ${creditsTotal} available${done === "credited" ? `, ${creditsUsed} used` : ""}`,
  });
  return { json: { id, organizationId, amount: credits, ...expires, reference, repeated, ...left }, text };
}
