import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import { expect } from "vitest";
import { auditRow, COMMAND_ACTOR } from "../../src/admin/audit.ts";
import { deliveryOf } from "../../src/admin/receivers.ts";
import type { HoldTransition, SettleTransition } from "../../src/credits/books.ts";
import type { HoldFacts } from "../../src/credits/facts.ts";
import { eventOf } from "../../src/credits/warnings.ts";
import { addAllowance, stopAllowance } from "../../src/operations/allowances.ts";
import { addBudget } from "../../src/operations/budgets.ts";
import type { AccountCore, CreditCore } from "../../src/operations/core.ts";
import { grantCredits, refundCredits, revokeCredits } from "../../src/operations/credits.ts";
import { addOrganization, updateCreditWarnings, updateOrganization } from "../../src/operations/organizations.ts";
import { replaceToken } from "../../src/operations/rotate-token.ts";
import { addToken, endToken, updateToken } from "../../src/operations/tokens.ts";
import { UsageDays } from "../../src/reports/usage-days.ts";
import type { ReceiverRow } from "../../src/stores/queries/events.ts";
import type { TopUpChange, TopUpCharge } from "../../src/stores/queries/top-ups.ts";
import { keepLog } from "../support/log.ts";
import { storeDigests } from "../support/month-digests.ts";
import { book, close, startOf } from "./closings.ts";
import {
  factsOf,
  HOUR_MS,
  holdOf,
  NO_PROVIDER_RECORD,
  paymentOf,
  releaseOf,
  type Subject,
  settleOf,
  tokenHoldOf,
  tokensOf,
} from "./fixture.ts";
import { redemptionOf, revokeVouchers, voucherBatch } from "./vouchers.ts";

const DAY_MS = 24 * HOUR_MS;
const CREDIT = 1_000_000n;

/**
 * Fills every table by the use cases of a service and an operator, with rows in every state. Requests of past days are booked
 * now and then moved.
 */
export async function populate(subject: Subject): Promise<string> {
  const { store } = subject;
  const core = { ...store, clock: Date.now, newId: () => v7(), random: randomBytes, actor: COMMAND_ACTOR };
  const limits = { requestsPerMinute: 60 };
  const terms = {
    models: ["m*"],
    aliases: { fast: "m1" },
    priceList: "partners",
    externalId: "crm-1",
    contacts: ["a@example.com"],
    note: "Pays late",
  };
  const { id: organizationId } = await addOrganization(core, "Populated", { limits, ...terms });
  const owner = { organizationId, callerId: "tok_first" };
  const item = { id: "msg_1", answerId: "resp_1", keptAtMs: core.clock(), bytes: 2, undelivered: "f", content: "{}" };
  await store.responseItems.insert(owner, [{ ...owner, ...item }]);
  await updateOrganization(core, organizationId, { name: "Renamed", keepsConversations: true, keepsResponses: false });
  await updateOrganization(core, organizationId, { status: "paused", pausesAllowances: true });
  await updateCreditWarnings(core, organizationId, [3n * CREDIT]);
  const token = await createTokens(core, organizationId);
  const selector = { tokens: [token.id], models: ["sandbox/*"], metadata: { user: ["1"] } };
  await addBudget(core, organizationId, { name: "Users", amount: 9, each: "metadata.user", window: "month", selector });
  await adjust(subject, organizationId);
  await serve(subject, { organizationId, tokenId: token.id, callerId: token.callerId });
  await closeMonth(subject, { organizationId, tokenId: token.id });
  await sumUp(subject, organizationId, token.id);
  await fillOthers(subject, organizationId, token.id);
  await pay(subject, organizationId, token.id);
  await redeem(subject, organizationId);
  await topUp(subject, organizationId);
  return organizationId;
}

/** Two batches, of which vouchers are redeemed, and one is revoked. */
async function redeem(subject: Subject, organizationId: string): Promise<void> {
  const first = await voucherBatch(subject, { priority: 3, creditDays: 30, expiresAtMs: Date.now() + DAY_MS });
  const second = await voucherBatch(subject);
  for (const made of [first, second]) {
    expect(await subject.one(redemptionOf(organizationId, made))).toMatchObject({ outcome: "granted" });
  }
  await revokeVouchers(subject, second.batch.id);
}

async function createTokens(core: AccountCore, organizationId: string) {
  const draft = { organizationId, name: "app" };
  const terms = { ...draft, scopes: ["models:read"], models: ["sandbox/echo"], limits: { tokensPerMinute: 9 } };
  const { row: capped } = await addToken(core, { ...terms, expiresAtMs: Date.now() + DAY_MS, cap: 5n * CREDIT });
  const { row: plain } = await addToken(core, draft);
  await replaceToken(core, plain.id, HOUR_MS);
  await replaceToken(core, plain.id, HOUR_MS, true);
  await endToken(core, plain.id);
  const rotated = await replaceToken(core, capped.id, HOUR_MS);
  await changeTokens(core, organizationId);
  return rotated.row;
}

/** A token whose terms were changed, rotated, and changed again, and one that got a cap and lost it. */
async function changeTokens(core: AccountCore, organizationId: string): Promise<void> {
  const draft = { organizationId, name: "app" };
  const [{ row: first }, { row: second }] = [await addToken(core, draft), await addToken(core, draft)];
  const limits = { concurrentRequests: 3 };
  await updateToken(core, first.id, { name: "changed", scopes: ["usage:read"], limits, cap: 2n * CREDIT });
  const { row } = await replaceToken(core, first.id, HOUR_MS);
  await updateToken(core, row.id, { models: ["sandbox/story"], expiresAtMs: Date.now() + DAY_MS, cap: CREDIT });
  await updateToken(core, second.id, { cap: CREDIT });
  await updateToken(core, second.id, { cap: null });
}

async function adjust({ store }: Subject, organizationId: string): Promise<void> {
  const { books } = store;
  const book: CreditCore["book"] = async (transition) => (await books.apply("durable", [transition]))[0];
  const parts = { clock: Date.now, newId: () => v7(), random: randomBytes, actor: COMMAND_ACTOR };
  const core: CreditCore = { ...store, ...parts, book };
  const soon = Date.now() + DAY_MS;
  const grant = (rest: object) => grantCredits(core, { organizationId, amount: 3n * CREDIT, ...rest });
  const first = await grant({ priority: 5, reference: "invoice 1", expiresAtMs: soon });
  await grant({ effectiveAtMs: soon });
  await grant({ expiresAtMs: Date.now() - 1 });
  await grant({});
  const revocation = { organizationId, amount: CREDIT, reference: null, note: null, grantId: null };
  await revokeCredits(core, { ...revocation, grantId: first.id, reference: "chargeback 1", note: "bounced" });
  await revokeCredits(core, revocation);
  const allowance = { organizationId, amount: CREDIT, anchorAtMs: null };
  await addAllowance(core, { ...allowance, lapses: true, reference: "plan" });
  const ended = await addAllowance(core, { ...allowance, lapses: false, reference: null });
  await stopAllowance(core, organizationId, ended.row.id);
  const goodwill = { organizationId, amount: 0n, expiresAtMs: soon, reference: "case 1", note: "sorry", holdId: null };
  await refundCredits(core, goodwill);
}

interface Caller {
  organizationId: string;
  tokenId: string;
  callerId: string;
}

/** One payment is refunded while its credits are held, which leaves a debt; one covers a part of it; one comes too late. */
async function pay(subject: Subject, organizationId: string, tokenId: string): Promise<void> {
  const { available } = (await subject.store.books.balance(organizationId)) ?? { available: 0n };
  const first = paymentOf(organizationId, "pi_first", { credits: 5n * CREDIT });
  await subject.one(first);
  const hold = tokenHoldOf(organizationId, tokenId, available + 4n * CREDIT);
  await subject.one(hold);
  const state = (rest: object) =>
    subject.one(paymentOf(organizationId, first.id, { ...first, refunded: 300n, ...rest }));
  await state({ disputed: 400n, revision: 1 });
  await subject.one(paymentOf(organizationId, "pi_second", { credits: CREDIT }));
  await subject.one(releaseOf(hold));
  await state({ disputed: 400n, revision: 3 });
  await state({ revision: 4 });
  const change = (status: string) =>
    subject.write(`update organization set status = '${status}' where id = '${organizationId}'`);
  await change("closed");
  await subject.one(paymentOf(organizationId, "pi_late", { credits: CREDIT }));
  await change("paused");
}

/** A charge has failed, one has paid the first payment, and one is pending. */
async function topUp({ store }: Subject, organizationId: string): Promise<void> {
  const atMs = Date.now();
  const time = { clock: () => atMs, newId: () => v7() };
  const change = (row: TopUpChange["row"], charge?: TopUpCharge) => {
    const audit = auditRow(COMMAND_ACTOR, { action: "top_up.set", organizationId, subjectId: organizationId }, time);
    return store.topUps.change(organizationId, atMs, () => ({ row, audit, ...(charge && { charge }) }));
  };
  const card = { customerId: "cus_1", id: "pm_1", brand: "visa", last4: "4242", savedAtMs: atMs };
  const terms = { threshold: CREDIT, price: 500n, monthlyMaximum: 5_000n, currency: "eur", setAtMs: atMs, card };
  await change({ ...terms, status: "paused", reason: "card_declined", nextAtMs: 0 });
  const made = { organizationId, price: 500n, currency: "eur", credits: 5n * CREDIT, createdAtMs: atMs };
  const begun = { ...made, paymentId: null, state: "pending" as const };
  await change({}, { ...begun, id: "failed" });
  await change({}, { ...begun, id: "failed", state: "failed" });
  await change({}, { ...begun, id: "paid" });
  await change({}, { ...begun, id: "paid", paymentId: "pi_first", state: "paid" });
  await change({}, { ...begun, id: "pending" });
}

/** Books requests in every state: open, charged, bounded, released, recovered, and settled late. */
async function serve(subject: Subject, { organizationId, tokenId, callerId }: Caller): Promise<void> {
  const asked = (key: string | null, lifeMs?: number): HoldTransition => {
    const hold = holdOf(organizationId, 10n, lifeMs);
    const facts = { ...hold.facts, tokenId, metadata: { user: "1" } };
    const name = key === null ? null : { callerId, key };
    const idempotency = name && { ...name, fingerprint: "f", keepMs: DAY_MS };
    return { ...hold, callerId, facts: { ...facts, idempotencyKey: name }, idempotency };
  };
  const [open, charged, bounded] = [asked("open"), asked("charged"), asked(null)];
  const [released, recovered, late] = [asked(null), asked("recovered", -1_000), asked(null, -1_000)];
  await subject.books.apply("holds", [open, charged, bounded, released, recovered, late]);
  const reported = tokensOf(50);
  const attempts = [{ route: "sandbox/echo", outcome: "answered", durationMs: 5, reported }];
  const trace = {
    isStreamed: true,
    firstTokenMs: 7,
    attempts,
    failure: null,
    providerResponseId: "r",
    providerCost: "0.1",
  };
  await subject.books.apply("durable", [
    { ...settled(charged.facts, 7), trace, answer: '"answer"' },
    { ...settled(bounded.facts, 9), trace, basis: "bounded" },
    { ...releaseOf(released), trace: { ...trace, ...NO_PROVIDER_RECORD, attempts: null, failure: "upstream_error" } },
    { kind: "expire", organizationId, holdId: recovered.facts.holdId },
    { kind: "expire", organizationId, holdId: late.facts.holdId },
  ]);
  await subject.one({ ...settleOf(late, 8), trace });
  const intent = { callerId, fingerprint: "f" };
  const [broken, waiting, retry] = [asked(null), asked(null), asked(null)];
  const breaks = (hold: HoldTransition): SettleTransition => {
    return { ...settleOf(hold, 3), facts: { ...hold.facts, intent }, end: "upstream_failed" };
  };
  await subject.books.apply("holds", [broken, waiting]);
  await subject.one(breaks(broken));
  await subject.held({ ...retry, facts: { ...retry.facts, intent } });
  await subject.books.apply("durable", [settleOf(retry, 9), breaks(waiting)]);
  const refund = { adjustmentId: "credit_populated", amount: 2n, holdId: charged.facts.holdId, priority: 0 };
  const terms = { expiresAtMs: Date.now() + DAY_MS, reference: "refund 1", note: null };
  const audit = {
    id: v7(),
    actorKind: "operator",
    actorId: "adm_1",
    actorName: null,
    address: "::1",
    requestId: "req_1",
  } as const;
  const after = {
    request_id: refund.holdId,
    expires_at: new Date(terms.expiresAtMs).toISOString(),
    reference: "refund 1",
  };
  const recorded = { audit: { ...audit, action: "credits.credit", after } };
  await subject.one({ kind: "credit", organizationId, ...refund, ...terms, ...recorded });
}

/** A settlement with parts that have a price of their own. */
function settled(facts: HoldFacts, output: number): SettleTransition {
  const prices = { ...facts.prices, outputAudio: 1_500_000n, tier: { serviceTier: "flex" } };
  const tokens = { ...tokensOf(output), outputAudio: 2 };
  return { ...settleOf({ facts }, output), facts: { ...facts, prices }, tokens };
}

async function closeMonth(subject: Subject, owner: { organizationId: string; tokenId: string }): Promise<void> {
  const past = { day: 3, days: [0, 0] as [number, number], kind: "charged", output: 6, isCapped: true } as const;
  await book(subject, owner, 0, past);
  // The second one includes the first, whose rows are removed.
  await storeDigests(subject.store, owner.organizationId, 500, 2);
  await close(subject, owner, startOf(1), Number.MAX_SAFE_INTEGER);
}

/** Sums up the usage of a day before. */
async function sumUp(subject: Subject, organizationId: string, tokenId: string): Promise<void> {
  const { books, usage } = subject.store;
  const beganMs = Date.now() - 3 * DAY_MS;
  const hold = holdOf(organizationId, 10n);
  // The route has another name than the model: a sum by the one is no sum by the other.
  const facts = factsOf(organizationId, { holdId: v7({ msecs: beganMs }), tokenId, upstream: "sandbox/echo-1" });
  await subject.held({ ...hold, facts });
  const trace = { isStreamed: true, firstTokenMs: 70, attempts: null, failure: null, providerResponseId: null };
  await subject.one({ ...settleOf({ facts }, 5), trace: { ...trace, providerCost: "0.25" } });
  const times = `made_at = ${beganMs}, ended_at = ${beganMs + 9}, is_late = 0`;
  await subject.write(
    `update request set ${times} where organization_id = '${organizationId}' and id = '${facts.holdId}'`,
  );
  await new UsageDays({ rows: usage, books, clock: Date.now, log: keepLog() }).sumUp();
}

/** Fills the tables that the books do not depend on. */
async function fillOthers({ store }: Subject, organizationId: string, tokenId: string): Promise<void> {
  const nowMs = Date.now();
  const [adminHash, sessionHash, memberHash] = [randomBytes(32), randomBytes(32), randomBytes(32)];
  await store.admin.insertFirstOperator({
    id: "",
    hash: adminHash,
    prefix: "adm",
    name: "admin",
    role: "operator",
    createdAtMs: nowMs,
    revokedAtMs: null,
  });
  const identity = { id: "idn_1", issuer: "https://login.example.com", subject: "s", name: "n", createdAtMs: nowMs };
  await store.identities.insertIdentity({ ...identity, blockedAtMs: null });
  await store.identities.claimIssuerKeys(identity.issuer, 0);
  await store.identities.storeIssuerKeys(identity.issuer, [{ kty: "OKP" }]);
  const times = { createdAtMs: nowMs, seenAtMs: nowMs, expiresAtMs: nowMs + DAY_MS };
  await store.admin.insertSession({
    hash: sessionHash,
    operatorId: "adm_first",
    tokenId: null,
    person: null,
    ...times,
  });
  await store.admin.insertSession({ hash: memberHash, operatorId: null, tokenId, person: null, ...times });
  const access = { name: "Ada", role: "auditor", organizationId: null, pins: {}, basis: "", signOutUrl: null } as const;
  const person = { issuer: "https://login.example", subject: "ada", ...access };
  await store.admin.insertSession({ hash: randomBytes(32), operatorId: null, tokenId: null, person, ...times });
  const short = { hash: randomBytes(32), tokenId, expiresAtMs: nowMs + HOUR_MS };
  await store.admin.insertShortToken({ ...short, sessionHash, operatorId: "adm_first" }, nowMs);
  await store.admin.claimAdminKey({ scope: "operator", key: "1", fingerprint: "f", keepMs: DAY_MS });
  await store.admin.answerAdminKey({ scope: "operator", key: "1" }, 200, "{}");
  const kept = { organizationId, holdId: v7(), endedAtMs: nowMs, isTruncated: false };
  await store.conversations.insert([{ ...kept, request: "{}", answer: "{}" }]);
  const event = eventOf("receiver.test", { organizationId, nowMs, period: ["1"] }, {});
  const receiver: ReceiverRow = {
    ...{ id: "rcv_1", organizationId, name: "Ops", format: "webhook", target: "https://a.example", kinds: null },
    ...{ secrets: [], createdAtMs: nowMs, failingSinceMs: null, disabledAtMs: null },
  };
  const subject = { action: "receiver.test", organizationId, subjectId: receiver.id };
  const record = () => auditRow(COMMAND_ACTOR, subject, { clock: Date.now, newId: () => v7() });
  await store.events.insertReceiver(receiver, record());
  await store.events.insertDelivery(event, deliveryOf(event, receiver, nowMs), record());
  const refused = { status: 402, code: "insufficient_credits", message: "m", durationMs: 1, count: 1 };
  const names = { organizationId, id: v7(), tokenId, requestId: "req_2", endpoint: "POST /v1", model: null };
  await store.refusals.insert([{ ...names, ...refused }]);
  await store.refusals.addToDays([{ organizationId, day: 0, code: refused.code, requests: 1 }]);
}
