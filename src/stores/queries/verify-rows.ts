import { maximum } from "../../credits/amount.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  RequestRow,
} from "../../credits/books.ts";
import { decodeLines } from "../../credits/charge-lines.ts";
import type { ClosingPartRow, ClosingRow } from "../../credits/closing.ts";
import type { Draw, Retry } from "../../credits/facts.ts";
import { sumOfDraws } from "../../credits/funds.ts";
import { addTokens, amountDue, areCounts, priceOf, type TokenCounts, tokenTotals } from "../../credits/price.ts";
import { isBookedLate, timeOfId } from "../../credits/request-id.ts";
import { compare, type ReportViolation } from "./verify-report.ts";

/** Maximum life of a hold; a later expiry comes from a wrong clock. */
const LIFE_MS_MAX = 86_400_000;
/** Clocks of the store and of services may differ, and be set, by less than this. */
const CLOCKS_DIFFER_MS = 3_600_000;
const KEY_KEPT_MS_MAX = 86_400_000;

/** Reports a violation of the request that is checked. */
type Fault = (invariant: number, message: string) => void;

/** Checks an ended request with its late settlements. */
export function checkRequestRow(request: RequestRow, late: readonly AdjustmentRow[], report: ReportViolation): void {
  const { holdId, cost, shortfall, draws, basis, end, endedAtMs, isLate } = request;
  const fault: Fault = (invariant, message) => report(invariant, message, holdId);
  const { tokens, prices } = decodeLines(request.charge);
  const [price, charged] = [amountDue(priceOf(tokens, prices), request.retry), cost + shortfall];
  if (charged !== price) fault(4, `Cost and shortfall add up to ${charged}, but the tokens cost ${price}.`);
  if (!areCounts(tokens)) fault(6, "It has a token count below 0, or a part above its class.");
  checkTotals(tokens, request, fault);
  checkDraws(draws, cost, fault);
  if (end === "released" && price !== 0n) fault(4, "The request was released and has a charge.");
  if ((end === "released") !== (basis === null)) fault(4, `A basis of ${basis} does not fit the end ${end}.`);
  checkBounded(request, fault);
  // Otherwise the statement does not find it.
  if (isLate !== isBookedLate(holdId, endedAtMs)) fault(3, "is_late does not fit its id and its booking time.");
  if (late.length > 1) fault(7, `The request has ${late.length} late settlements.`);
  for (const row of late) checkLateSettlement(request, tokens, row, fault);
}

type ChargedTokens = Pick<RequestRow, "inputTokens" | "outputTokens">;

function checkTotals(tokens: TokenCounts, { inputTokens, outputTokens }: ChargedTokens, fault: Fault): void {
  const { input, output } = tokenTotals(tokens);
  if (input === inputTokens && output === outputTokens) return;
  const sums = `${inputTokens} of input and ${outputTokens} of output`;
  fault(4, `The sums of tokens are ${sums}, but the charge is for ${input} and ${output}.`);
}

function checkLateSettlement(request: RequestRow, counts: TokenCounts, late: AdjustmentRow, fault: Fault): void {
  const { holdId, end } = request;
  const { settlement, amount, draws } = late;
  if (late.id !== `late_${holdId}`) fault(9, `The late settlement ${late.id} could be booked again.`);
  if (end !== "recovered") fault(7, `The request ended as ${end}, but has a late settlement.`);
  if (settlement === null) {
    fault(4, "The late settlement has no tokens.");
    return;
  }
  checkBounded(settlement, fault);
  const { tokens: more, prices } = decodeLines(settlement.charge);
  checkTotals(more, settlement, fault);
  const tokens = addTokens(counts, more);
  if (!areCounts(tokens)) {
    fault(6, "The late settlement leaves a token count below 0, or a part above its class.");
    return;
  }
  const price = amountDue(priceOf(tokens, prices), request.retry);
  const [cost, shortfall] = [request.cost + amount, request.shortfall + settlement.shortfall];
  const charged = cost + shortfall;
  if (charged < price) fault(4, `The late settlement charges ${charged} in all, but the tokens cost ${price}.`);
  if (charged > price && amount > 0n) fault(4, `It charges ${charged} in all, more than the price ${price}.`);
  if (cost < 0n || shortfall < 0n) fault(6, "The late settlement leaves an amount below 0.");
  if (sumOfDraws(draws) !== amount) fault(2, `It draws ${sumOfDraws(draws)} on grants instead of ${amount}.`);
}

/** Tokens are limited to a bound only where the upstream reported more. */
function checkBounded({ basis, trace }: Pick<RequestRow, "basis" | "trace">, fault: Fault): void {
  const isReported = trace?.attempts?.some(({ reported }) => reported !== undefined) ?? false;
  if (basis === "bounded" && !isReported) fault(4, "The basis is bounded, but no report of an upstream is recorded.");
}

/** A retry, by the id of its request. */
export interface Repetition extends Retry {
  holdId: string;
}

/** Checks what the attempts before a retry were charged. A late settlement of one may have followed. */
export function checkRetry(
  { holdId, of, paid }: Repetition,
  attempt: RequestRow | undefined,
  late: bigint,
  report: ReportViolation,
): void {
  const charged = (attempt?.cost ?? 0n) + (attempt?.retry?.paid ?? 0n) + maximum(late, 0n);
  if (paid <= 0n || paid > charged) {
    report(17, `It repeats ${of} for ${paid}, but that and the attempts before it were charged ${charged}.`, holdId);
  }
  if (attempt !== undefined && (attempt.end === "complete" || attempt.end === "client_disconnected")) {
    report(17, `It repeats ${of}, which ended as ${attempt.end}.`, holdId);
  }
}

/** Checks the times of a request against each other and its id. */
export function checkRequestTimes({ holdId, madeAtMs, endedAtMs, isLate }: RequestRow, report: ReportViolation): void {
  if (endedAtMs < madeAtMs) report(13, `The request ended at ${endedAtMs}, before it was made at ${madeAtMs}.`, holdId);
  if (!isLate) checkMadeAfterId(holdId, madeAtMs, report);
}

function checkMadeAfterId(holdId: string, madeAtMs: number, report: ReportViolation): void {
  const idMs = timeOfId(holdId) ?? madeAtMs;
  if (madeAtMs < idMs - CLOCKS_DIFFER_MS) report(13, `It was made at ${madeAtMs}, before the time in its id.`, holdId);
}

/** Times that a hold is compared with. */
export interface HoldLimits {
  nowMs: number;
  /** Time of the last booking. In a copy, or while no service runs, no hold is ended after it. */
  bookedMs: number;
  /** Time after its expiry within which a service ends it. */
  endsWithinMs: number;
}

/** Checks an open hold. */
export function checkHold(hold: HoldRow, { nowMs, bookedMs, endsWithinMs }: HoldLimits, report: ReportViolation): void {
  const { holdId, amount, draws, expiresAtMs, details } = hold;
  const fault: Fault = (invariant, message) => report(invariant, message, holdId);
  if (!areCounts(decodeLines(details.charge).tokens)) fault(6, "The hold has a token count below 0.");
  checkDraws(draws, amount, fault);
  const overdueMs = bookedMs - expiresAtMs;
  if (overdueMs > endsWithinMs) fault(8, `The hold was open ${overdueMs} ms after its expiry.`);
  checkMadeAfterId(holdId, hold.madeAtMs, report);
  const leftMs = expiresAtMs - nowMs;
  if (leftMs > LIFE_MS_MAX) fault(8, `The hold expires only in ${leftMs} ms.`);
}

function checkDraws(draws: readonly Draw[], amount: bigint, fault: Fault): void {
  const sum = sumOfDraws(draws);
  if (sum !== amount) fault(2, `The draws on grants add up to ${sum} instead of ${amount}.`);
  if (draws.some((draw) => draw.amount <= 0n)) fault(2, "A draw on a grant is not above 0.");
}

/** `taken`: what holds, requests, late settlements, revocations and expiries took from the grant. */
export function checkGrant(grant: GrantRow, taken: Taken, report: ReportViolation): void {
  const { id, amount, revoked, remaining, state } = grant;
  const { drawn = 0n, expired = 0n, revoked: adjusted = 0n } = taken;
  const isPending = state === "pending";
  if (isPending && drawn + expired !== 0n) report(1, `The grant ${id} is used before it takes effect.`);
  if (remaining > amount) report(6, `The grant ${id} has an impossible amount.`);
  const left = isPending ? 0n : amount - revoked - drawn - expired;
  const expected = { revoked: adjusted, remaining: left };
  compare(report, 1, `grant ${id}`, grant, expected, "revocations, draws and expiries say");
  if (state === "expired" && remaining !== 0n) report(1, `The grant ${id} has expired, but ${remaining} remain.`);
}

export interface Taken {
  drawn?: bigint;
  expired?: bigint;
  revoked?: bigint;
}

/** Checks that the next change of a balance is no later than that of any of its grants. */
export function checkNextChange({ nextChangeAtMs }: BalanceRow, grants: readonly GrantRow[], report: ReportViolation) {
  const changes = grants.flatMap(({ state, effectiveAtMs, expiresAtMs, remaining }) => {
    if (state === "pending") return [effectiveAtMs];
    return remaining > 0n && expiresAtMs !== null ? [expiresAtMs] : [];
  });
  const first = changes.reduce((least, atMs) => Math.min(least, atMs), Number.POSITIVE_INFINITY);
  if ((nextChangeAtMs ?? Number.POSITIVE_INFINITY) > first) {
    report(10, `A grant changes at ${first}, but the next change of the balance is ${nextChangeAtMs}.`);
  }
}

/** Checks that the sums of closed requests agree with each other. */
export function checkClosing(
  closing: ClosingRow | undefined,
  parts: readonly ClosingPartRow[],
  report: ReportViolation,
): void {
  const { cost = 0n, shortfall = 0n, price = 0n } = closing ?? {};
  if (cost + shortfall !== price) {
    report(4, `Cost and shortfall of closed requests are ${cost + shortfall}, but their tokens cost ${price}.`);
  }
  for (const dimension of ["token", "grant"] as const) {
    const sum = parts.reduce((all, part) => (part.dimension === dimension ? all + part.amount : all), 0n);
    if (sum !== cost) report(3, `The closed requests cost ${cost}, but by ${dimension} they add up to ${sum}.`);
  }
}

/** Checks that a key names a request that carried it and was not released; only a charged one has an answer. */
export function checkKey(
  row: IdempotencyKeyRow,
  of: { hold?: HoldRow | undefined; request?: RequestRow | undefined; isSettledLate: boolean },
  report: ReportViolation,
): void {
  const { callerId, key, holdId, answer, createdAtMs, expiresAtMs } = row;
  const { hold, request, isSettledLate } = of;
  const name = `The key ${JSON.stringify(key)}`;
  const fault: Fault = (invariant, message) => report(invariant, `${name} ${message}.`, holdId);
  const ownKey = request?.idempotencyKey ?? hold?.details.idempotencyKey ?? null;
  if (hold === undefined && request === undefined) {
    fault(9, "names no request");
    return;
  }
  if (ownKey?.key !== key || ownKey.callerId !== callerId) fault(9, "names a request that came without it");
  // A request whose hold was lost has the time of its settlement.
  const madeAtMs = request?.endedAtMs === request?.madeAtMs ? hold?.madeAtMs : request?.madeAtMs;
  if (madeAtMs !== undefined && createdAtMs !== madeAtMs) {
    fault(13, `was claimed at ${createdAtMs}, but its request was made at ${madeAtMs}`);
  }
  const keptMs = expiresAtMs - createdAtMs;
  if (keptMs <= 0 || keptMs > KEY_KEPT_MS_MAX) fault(9, `is kept for ${keptMs} ms`);
  if (request?.end === "released") fault(9, "names a request that was released");
  const isCharged = request !== undefined && (request.end !== "recovered" || isSettledLate);
  if (answer !== null && !isCharged) fault(9, "has the answer of a request without a charge");
}

const TERMS_OF_KIND: Record<AdjustmentRow["kind"], readonly (keyof AdjustmentRow)[]> = {
  revoke: ["isAll", "grantId", "reference", "note"],
  credit: ["expiresAtMs", "holdId", "tokenId", "reference", "note"],
  lapse: ["expiresAtMs"],
  late_settlement: ["holdId", "tokenId", "settlement"],
};
const TERMS = ["isAll", "grantId", "expiresAtMs", "holdId", "tokenId", "reference", "note", "settlement"] as const;

/** Checks that an adjustment has the terms of its kind, refers to existing rows and draws its amount. */
export function checkAdjustment(
  row: AdjustmentRow,
  request: RequestRow | "removed" | undefined,
  report: ReportViolation,
): void {
  const { id, kind, amount, draws, holdId, tokenId, madeAtMs } = row;
  const fault: Fault = (invariant, message) => report(invariant, `The adjustment ${id} ${message}.`, holdId);
  if (sumOfDraws(draws) !== amount) fault(2, `of ${amount} draws ${sumOfDraws(draws)} on grants`);
  if (kind !== "late_settlement" && amount < 0n) fault(6, "has an amount below 0");
  const others = TERMS.filter((name) => (row[name] ?? false) !== false && !TERMS_OF_KIND[kind].includes(name));
  if (others.length > 0) fault(11, `of the kind ${kind} has ${others.join(", ")}`);
  if ((holdId === null) !== (tokenId === null)) report(10, `The adjustment ${id} names only one of request and token.`);
  if (holdId === null && kind === "late_settlement") report(7, `The late settlement ${id} names no request.`);
  if (holdId === null || request === "removed") return;
  const { endedAtMs = 0, tokenId: own = tokenId } = request ?? {};
  if (request === undefined) fault(7, "names a request that does not exist");
  if (madeAtMs < endedAtMs - CLOCKS_DIFFER_MS) fault(13, `was made at ${madeAtMs}, before its request ended`);
  if (tokenId !== own) fault(3, "names the token of another request");
}
