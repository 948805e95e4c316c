import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { BookingAudit } from "../../src/credits/audit.ts";
import type { CreditTransition, RevokeTransition } from "../../src/credits/books.ts";
import type { LedgerEntry } from "../../src/stores/queries/statement.ts";
import {
  grantOf,
  HOUR_MS,
  holdOf,
  randomId,
  referenceOf,
  releaseOf,
  renewOf,
  type Subject,
  settleOf,
  tokenHoldOf,
} from "./fixture.ts";

function revokeOf(
  organizationId: string,
  amount: bigint | null,
  rest: Partial<RevokeTransition> = {},
): RevokeTransition {
  const named = { kind: "revoke" as const, organizationId, adjustmentId: randomId("adjustment"), amount };
  return { ...named, grantId: null, reference: null, note: null, ...rest };
}

function creditOf(organizationId: string, amount: bigint, rest: Partial<CreditTransition> = {}): CreditTransition {
  const named = { kind: "credit" as const, organizationId, adjustmentId: randomId("adjustment"), amount };
  return { ...named, holdId: null, expiresAtMs: null, priority: 0, reference: null, note: null, ...rest };
}

export function adjustmentCases(subject: Subject): void {
  revokeCases(subject);
  creditCases(subject);
  capCases(subject);
  checkpointCases(subject);
  auditCases(subject);
}

function revokeCases(subject: Subject): void {
  test("a revocation of more than is available is refused and books nothing", async () => {
    const organizationId = await subject.organization(100n);
    const held = await subject.held(holdOf(organizationId, 70n));
    const revoke = revokeOf(organizationId, 31n, { reference: "chargeback" });
    expect(await subject.one(revoke)).toEqual({ outcome: "excessive", most: 30n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 100n, available: 30n, held: 70n });
    // A refused revocation does not use up the reference.
    await subject.one(releaseOf(held));
    expect(await subject.one(revoke)).toMatchObject({
      outcome: "revoked",
      repeated: false,
      adjustment: { amount: 31n },
    });
    await subject.expectSound(organizationId);
  });

  test("a revocation of everything takes the available credits, once per reference", async () => {
    const organizationId = await subject.organization(100n);
    await subject.held(holdOf(organizationId, 70n));
    const revoke = revokeOf(organizationId, null, { reference: "chargeback 'x'", note: "bounced" });
    const first = await subject.one(revoke);
    expect(first).toMatchObject({ outcome: "revoked", repeated: false, adjustment: { amount: 30n, note: "bounced" } });
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 70n, available: 0n, held: 70n });
    await subject.one(grantOf(organizationId, 40n));
    const later = { ...revoke, adjustmentId: randomId("adjustment") };
    for (const again of [revoke, later, { ...later, note: "another note" }, { ...revoke, reference: null }]) {
      expect(await subject.one(again)).toMatchObject({ repeated: true, adjustment: { amount: 30n } });
    }
    for (const other of [{ amount: 30n }, { grantId: "grant_other" }]) {
      const refused = await subject.one({ ...later, ...other });
      expect(refused).toMatchObject({ outcome: "reference_mismatch", first: { amount: 30n, isAll: true } });
    }
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 110n, available: 40n });
    await subject.expectSound(organizationId);
  });

  test("a revocation of a grant does not change others, and can precede its effect", async () => {
    const organizationId = await subject.organization(100n);
    const atMs = Date.now() + HOUR_MS / 2;
    const [named, pending] = [grantOf(organizationId, 50n), grantOf(organizationId, 30n, { effectiveAtMs: atMs })];
    await subject.books.apply("durable", [named, pending]);
    const excessive = await subject.one(revokeOf(organizationId, 51n, { grantId: named.grantId }));
    expect(excessive).toEqual({ outcome: "excessive", most: 50n });
    const ofNamed = await subject.one(revokeOf(organizationId, 50n, { grantId: named.grantId }));
    expect(ofNamed).toMatchObject({ adjustment: { amount: 50n, draws: [{ grantId: named.grantId, amount: 50n }] } });
    await subject.one(revokeOf(organizationId, 20n, { grantId: pending.grantId }));
    const ofPending = await subject.one(revokeOf(organizationId, 11n, { grantId: pending.grantId }));
    expect(ofPending).toEqual({ outcome: "excessive", most: 10n });
    expect(await subject.one(revokeOf(organizationId, 1n, { grantId: "absent" }))).toEqual({
      outcome: "unknown_grant",
    });
    await subject.expectSound(organizationId);
    await subject.passHour(organizationId);
    const refreshed = await subject.one({ kind: "refresh", organizationId });
    expect(refreshed).toMatchObject({ balance: { granted: 110n, available: 110n } });
    await subject.expectSound(organizationId);
  });
}

function creditCases(subject: Subject): void {
  test("a credit returns spent credits as a new grant", async () => {
    const organizationId = await subject.organization(100n);
    await subject.one(settleOf(holdOf(organizationId, 60n), 60));
    const credit = creditOf(organizationId, 50n, { reference: "case 7", note: "a bad answer" });
    expect(await subject.one(credit)).toMatchObject({ outcome: "credited", repeated: false, balance: { spent: 10n } });
    expect(await subject.one({ ...credit, adjustmentId: randomId("adjustment") })).toMatchObject({
      repeated: true,
      adjustment: { id: credit.adjustmentId, amount: 50n, note: "a bad answer" },
    });
    const later = { ...credit, adjustmentId: randomId("adjustment") };
    for (const other of [{ amount: 5n }, { holdId: "hold_other" }, { expiresAtMs: Date.now() + HOUR_MS }]) {
      const refused = await subject.one({ ...later, ...other });
      expect(refused).toMatchObject({ outcome: "reference_mismatch", first: { id: credit.adjustmentId, amount: 50n } });
    }
    const balance = { granted: 100n, available: 90n, held: 0n, spent: 10n, expired: 0n };
    expect(await subject.books.balance(organizationId)).toMatchObject(balance);
    expect(await subject.one(creditOf(organizationId, 11n))).toEqual({ outcome: "excessive", most: 10n });
    await subject.one(settleOf(await subject.held(holdOf(organizationId, 90n)), 90));
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 100n, available: 0n, spent: 100n });
    await subject.expectSound(organizationId);
  });

  test("a credit for a request is at most its charge, and restores the cap of its token", async () => {
    const organizationId = await subject.organization(100n);
    const tokenId = await subject.cappedToken(organizationId, 20n);
    const hold = tokenHoldOf(organizationId, tokenId, 20n);
    const other = holdOf(organizationId, 30n);
    await subject.books.apply("holds", [hold, other]);
    await subject.books.apply("durable", [settleOf(hold, 20), settleOf(other, 30)]);
    const { holdId } = hold.facts;
    expect(await subject.one(creditOf(organizationId, 21n, { holdId }))).toEqual({ outcome: "excessive", most: 20n });
    expect(await subject.one(creditOf(organizationId, 15n, { holdId }))).toMatchObject({
      adjustment: { holdId, tokenId },
    });
    expect(await subject.one(creditOf(organizationId, 6n, { holdId }))).toEqual({ outcome: "excessive", most: 5n });
    expect(await subject.one(creditOf(organizationId, 1n, { holdId: "absent" }))).toEqual({ outcome: "missing" });
    await subject.held(tokenHoldOf(organizationId, tokenId, 15n));
    await subject.expectSound(organizationId);
  });

  test("a late settlement does not return credits that a credit has already returned", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(holdOf(organizationId, 50n));
    await subject.one(renewOf(hold, 40, -1_000), "holds");
    await subject.one({ kind: "expire", ...referenceOf(hold) });
    await subject.one(creditOf(organizationId, 30n, { holdId: hold.facts.holdId }));
    expect(await subject.one(settleOf(hold, 10))).toMatchObject({ outcome: "charged", charged: 30n, shortfall: 0n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 100n, spent: 0n });
    await subject.expectSound(organizationId);
  });

  test("a credit expires at its expiry date", async () => {
    const organizationId = await subject.organization(10n);
    await subject.one(settleOf(holdOf(organizationId, 10n), 10));
    await subject.one(creditOf(organizationId, 10n, { expiresAtMs: Date.now() + HOUR_MS / 2 }));
    await subject.passHour(organizationId);
    const refreshed = await subject.one({ kind: "refresh", organizationId });
    expect(refreshed).toMatchObject({ balance: { granted: 10n, available: 0n, spent: 0n, expired: 10n } });
    await subject.expectSound(organizationId);
  });
}

function capCases(subject: Subject): void {
  test("a token's cap refuses holds beyond it", async () => {
    const organizationId = await subject.organization(100n);
    const tokenId = await subject.cappedToken(organizationId, 30n);
    const hold = (least: bigint, most = least) => ({ ...tokenHoldOf(organizationId, tokenId, least), most });
    const first = await subject.held(hold(20n));
    const full = { isCap: true, window: "lifetime", limit: 30n, held: 30n, spent: 0n };
    expect(await subject.one(hold(5n, 20n))).toMatchObject({
      ...{ outcome: "held", amount: 10n, available: 70n },
      covered: { budgets: expect.stringMatching(/^\[\["[^"]+",0,""\]\]$/), tightest: full },
    });
    const short = { budget: full, available: 70n, reach: 0n };
    expect(await subject.one(hold(30n))).toMatchObject({ outcome: "busy", held: 30n, ...short });
    expect(await subject.one(hold(31n))).toMatchObject({ outcome: "insufficient", ...short });
    // A settlement is never refused: it may exceed the cap, and then no more holds are admitted.
    await subject.one(settleOf(first, 35));
    expect(await subject.one(hold(1n))).toMatchObject({ outcome: "insufficient", budget: { isCap: true }, reach: 0n });
    expect(await subject.store.accounts.token(tokenId)).toMatchObject({ budget: { cap: 30n, held: 10n, spent: 35n } });
    await subject.held(holdOf(organizationId, 50n));
    await subject.expectSound(organizationId);
  });
}

function checkpointCases(subject: Subject): void {
  test("an expiry charges the checkpoint of the last renewal, at its route's prices", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(holdOf(organizationId, 50n));
    await subject.one(renewOf(hold, 3, -1_000), "holds");
    const prices = { ...hold.facts.prices, output: 2_000_000n };
    const taken = { ...renewOf(hold, 7, -1_000), facts: { ...hold.facts, upstream: "other/route", prices } };
    await subject.one(taken, "holds");
    expect(await subject.one({ kind: "expire", ...referenceOf(hold) })).toMatchObject({ charged: 14n });
    expect(await subject.events(organizationId)).toMatchObject([
      { cost: 14n, upstream: "other/route", basis: "counted", end: "recovered", tokens: { output: 7 } },
    ]);
    expect(await subject.one(settleOf(hold, 9))).toMatchObject({ charged: 9n });
    const costs = (await subject.events(organizationId)).map(({ cost }) => cost);
    expect(costs.sort()).toEqual([-5n, 14n].sort());
    await subject.expectSound(organizationId);
  });

  test("a lost hold is recreated as far as the credits suffice", async () => {
    const organizationId = await subject.organization(100n);
    const lost = holdOf(organizationId, 60n);
    await subject.held(holdOf(organizationId, 70n));
    expect(await subject.one(renewOf(lost, 5))).toEqual({ outcome: "renewed", remade: true });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 0n, held: 100n });
    expect(await subject.one(renewOf(lost, 6))).toEqual({ outcome: "renewed", remade: false });
    expect(await subject.one(settleOf(lost, 20))).toMatchObject({ charged: 20n, shortfall: 0n });
    expect(await subject.one(renewOf(lost, 7))).toEqual({ outcome: "ended", state: "charged" });
    await subject.expectSound(organizationId);
  });
}

function auditOf(action: string, terms: Record<string, unknown> = {}): BookingAudit {
  const actor = {
    actorKind: "operator",
    actorId: "adm_1",
    actorName: null,
    address: "::1",
    requestId: "req_1",
  } as const;
  return { id: v7(), ...actor, action, after: { why: "日\n'\u0000", ...terms } };
}

function auditCases(subject: Subject): void {
  const auditsOf = (organizationId: string) =>
    subject.store.admin.audit({ organizationId, action: null, before: null, limit: 100 });

  test("a booking writes its audit record, and a repetition writes none", async () => {
    const organizationId = await subject.organization();
    const ofGrant = auditOf("credits.grant", { reference: "invoice", priority: 100 });
    const ofRevocation = auditOf("credits.revoke", { reference: "chargeback", all: true });
    const ofCredit = auditOf("credits.credit", { reference: "case" });
    const grant = grantOf(organizationId, 5_000_000n, { reference: "invoice", audit: ofGrant });
    await subject.one(grant);
    await subject.one(settleOf(await subject.held(holdOf(organizationId, 2_000_000n)), 2_000_000));
    const revoke = revokeOf(organizationId, null, { reference: "chargeback", audit: ofRevocation });
    const credit = creditOf(organizationId, 1_500_000n, { reference: "case", audit: ofCredit });
    await subject.books.apply("durable", [revoke, credit]);
    for (const again of [grant, { ...grant, grantId: randomId("grant"), audit: auditOf("credits.grant") }]) {
      expect(await subject.one(again)).toMatchObject({ outcome: "granted", repeated: true });
    }
    for (const first of [revoke, credit]) {
      const later = { ...first, adjustmentId: randomId("adjustment"), audit: auditOf("credits.later") };
      for (const again of [first, later]) expect(await subject.one(again)).toMatchObject({ repeated: true });
    }
    const entries = (await auditsOf(organizationId)).toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const statement = await subject.statement(organizationId);
    const booked = (audit: BookingAudit, subjectId: string, amount: unknown, madeAtMs: number | undefined) => {
      const { after, ...actor } = audit;
      return { ...actor, organizationId, subjectId, madeAtMs, before: null, after: { ...after, amount } };
    };
    const idOf = (entry: LedgerEntry) =>
      entry.kind === "grant" ? entry.grant.id : "adjustment" in entry && entry.adjustment.id;
    const atMs = (id: string) => statement.find((entry) => idOf(entry) === id)?.atMs;
    expect(entries).toEqual([
      booked(ofGrant, grant.grantId, 5, atMs(grant.grantId)),
      booked(ofRevocation, revoke.adjustmentId, 3, atMs(revoke.adjustmentId)),
      booked(ofCredit, credit.adjustmentId, 1.5, atMs(credit.adjustmentId)),
    ]);
    await subject.expectSound(organizationId);
  });

  test("a batch that fails leaves neither a booking nor an audit record", async () => {
    const organizationId = await subject.organization(10n);
    const audit = auditOf("credits.grant", { priority: 100 });
    const grant = grantOf(organizationId, 5n, { audit });
    const failing = grantOf(organizationId, -1n);
    await expect(subject.books.apply("durable", [grant, failing])).rejects.toThrow();
    // An audit record that cannot be written rolls back its booking.
    const taken = auditOf("credits.grant", { priority: 100 });
    await subject.one(grantOf(organizationId, 1n, { audit: taken }));
    await expect(subject.one(grantOf(organizationId, 7n, { audit: taken }))).rejects.toThrow();
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 11n });
    expect((await auditsOf(organizationId)).map(({ id }) => id)).toEqual([taken.id]);
    expect(await subject.one(grant)).toMatchObject({ repeated: false });
    expect((await auditsOf(organizationId)).map(({ id }) => id).sort()).toEqual([taken.id, audit.id].sort());
    await subject.expectSound(organizationId);
  });
}
