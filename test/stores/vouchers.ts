import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { v7 } from "uuid";
import { afterAll, beforeAll, expect, test } from "vitest";
import { auditRow, COMMAND_ACTOR } from "../../src/admin/audit.ts";
import type { AuditRow } from "../../src/credits/audit.ts";
import type { RedeemTransition, Transition, VoucherBatchRow } from "../../src/credits/books.ts";
import { voucherGrantId } from "../../src/credits/names.ts";
import type { Outcomes } from "../../src/credits/outcomes.ts";
import type { Books } from "../../src/stores/queries/books.ts";
import type { Store } from "../../src/stores/store.ts";
import { countOf } from "../support/counts.ts";
import { auditOf, grantOf, HOUR_MS, holdOf, one, randomId, type Subject, settleOf } from "./fixture.ts";

interface Made {
  batch: VoucherBatchRow;
  ids: string[];
}

const DAY_MS = 24 * HOUR_MS;

/** Writes a batch of vouchers of 100 micro-credits, two if not stated otherwise. */
export async function voucherBatch({ store }: Subject, terms: Partial<VoucherBatchRow> = {}): Promise<Made> {
  const times = { createdAtMs: Date.now(), expiresAtMs: null, revokedAtMs: null };
  const id = randomId("batch");
  const batch = { id, name: "Trial", count: 2, amount: 100n, priority: 0, creditDays: null, ...times, ...terms };
  const ids = Array.from({ length: batch.count }, () => randomId("vou"));
  const unused = { batchId: batch.id, prefix: "7K3QX", isRevoked: false, organizationId: null, redeemedAtMs: null };
  const rows = ids.map((voucherId) => ({ id: voucherId, hash: new Uint8Array(randomBytes(32)), ...unused }));
  await store.vouchers.insert(batch, rows, recordOf("voucher.create", batch.id));
  return { batch, ids };
}

export function revokeVouchers({ store }: Subject, batchId: string): Promise<boolean> {
  return store.vouchers.revoke(batchId, Date.now(), recordOf("voucher.revoke", batchId));
}

function recordOf(action: string, id: string): AuditRow {
  const time = { clock: Date.now, newId: () => v7() };
  return auditRow(COMMAND_ACTOR, { action, organizationId: null, subjectId: id }, time);
}

/** Returns the redemption of a voucher of a batch: the first one if not stated otherwise. */
export function redemptionOf(organizationId: string, { batch, ids }: Made, index = 0): RedeemTransition {
  const { amount, priority, creditDays, expiresAtMs } = batch;
  const terms = { amount, priority, creditDays, expiresAtMs, voucherId: ids[index] ?? "" };
  const audit = { ...auditOf(organizationId, ""), action: "voucher.redeem", after: {} };
  return { kind: "redeem", organizationId, ...terms, audit };
}

const UNUSABLE = (reason: string) => ({ outcome: "unusable", reason });

export function voucherCases(subject: Subject): void {
  let other: Store;
  beforeAll(async () => {
    other = await subject.openAnother();
  });
  afterAll(() => other.close());
  const both = () => [subject.books, other.books] as const;
  const granted = async (id: string) => (await subject.books.balance(id))?.granted;

  termCases(subject, granted);
  refusalCases(subject, granted);
  raceCases(subject, both, granted);
  damageCases(subject);
}

type Granted = (id: string) => Promise<bigint | undefined>;

function termCases(subject: Subject, granted: Granted): void {
  test("a voucher grants its credits once, under its id and with the terms of its batch", async () => {
    const organizationId = await subject.organization();
    const made = await voucherBatch(subject, { priority: 7, creditDays: 30 });
    const [voucherId = ""] = made.ids;
    expect(await subject.one(redemptionOf(organizationId, made))).toMatchObject({
      ...{ outcome: "granted", grantId: voucherGrantId(voucherId), repeated: false, balance: { available: 100n } },
    });
    expect(await subject.one(redemptionOf(organizationId, made))).toMatchObject({ outcome: "granted", repeated: true });
    expect(await granted(organizationId)).toBe(100n);
    const [entry] = await subject.statement(organizationId);
    if (entry?.kind !== "grant") throw new Error("the grant is missing");
    expect(entry.grant).toMatchObject({ reference: voucherId, amount: 100n, priority: 7 });
    expect(entry.grant.expiresAtMs).toBe(entry.grant.createdAtMs + 30 * DAY_MS);
    expect(await subject.store.vouchers.list(made.batch.id, { after: null, limit: 10 })).toContainEqual(
      expect.objectContaining({ id: voucherId, organizationId }),
    );
    expect(await subject.store.vouchers.batch(made.batch.id)).toMatchObject({ count: 2, redeemed: 1 });
    await subject.expectSound(organizationId);
  });

  test("a voucher that was redeemed and spent is not granted again to its organization", async () => {
    const organizationId = await subject.organization();
    const made = await voucherBatch(subject);
    await subject.one(redemptionOf(organizationId, made));
    const hold = await subject.held(holdOf(organizationId, 100n));
    await subject.one(settleOf(hold, 100));
    expect(await subject.one(redemptionOf(organizationId, made))).toMatchObject({ outcome: "granted", repeated: true });
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 100n, spent: 100n, available: 0n });
  });

  test("each redemption and each change of a batch has one audit record", async () => {
    const organizationId = await subject.organization();
    const made = await voucherBatch(subject);
    await subject.one(redemptionOf(organizationId, made));
    await subject.one(redemptionOf(organizationId, made));
    expect(await revokeVouchers(subject, made.batch.id)).toBe(true);
    expect(await revokeVouchers(subject, made.batch.id)).toBe(false);
    const page = { organizationId: null, action: null, before: null, limit: 10 };
    const actions = async (subjectId: string) =>
      (await subject.store.admin.audit({ ...page, subjectId })).map(({ action }) => action).sort();
    expect(await actions(made.batch.id)).toEqual(["voucher.create", "voucher.revoke"]);
    expect(await actions(voucherGrantId(made.ids[0] ?? ""))).toEqual(["voucher.redeem"]);
  });
}

function refusalCases(subject: Subject, granted: Granted): void {
  test("a voucher that another organization has redeemed is refused, also in one batch of transitions", async () => {
    const [first, second] = [await subject.organization(), await subject.organization()];
    const made = await voucherBatch(subject);
    const both = [redemptionOf(second, made), redemptionOf(first, made)];
    expect(await subject.books.apply("durable", both)).toMatchObject([{ outcome: "granted" }, UNUSABLE("redeemed")]);
    expect(await subject.one(redemptionOf(first, made))).toEqual(UNUSABLE("redeemed"));
    expect([await granted(first), await granted(second)]).toEqual([0n, 100n]);
  });

  test("an expired and a revoked voucher are refused, but a redeemed one is still answered", async () => {
    const organizationId = await subject.organization();
    const expired = await voucherBatch(subject, { expiresAtMs: Date.now() - 1 });
    expect(await subject.one(redemptionOf(organizationId, expired))).toEqual(UNUSABLE("expired"));
    const made = await voucherBatch(subject);
    await subject.one(redemptionOf(organizationId, made, 1));
    await revokeVouchers(subject, made.batch.id);
    expect(await subject.one(redemptionOf(organizationId, made))).toEqual(UNUSABLE("revoked"));
    expect(await subject.one(redemptionOf(organizationId, made, 1))).toMatchObject({ repeated: true });
    expect(await granted(organizationId)).toBe(100n);
    await subject.expectSound(organizationId);
  });

  test("a closed organization redeems no voucher, and another one still can", async () => {
    const [closed, open] = [await subject.organization(), await subject.organization()];
    const change = { status: "closed", pausesAllowances: true } as const;
    await subject.store.accounts.changeOrganization(closed, change, () => auditOf(closed, closed));
    const made = await voucherBatch(subject);
    expect(await subject.one(redemptionOf(closed, made))).toEqual(UNUSABLE("closed"));
    expect(await subject.one(redemptionOf(open, made))).toMatchObject({ outcome: "granted" });
    await subject.expectSound(closed);
  });

  test("a voucher that an operator granted by hand under its id, and an unknown one, are refused", async () => {
    const organizationId = await subject.organization();
    const made = await voucherBatch(subject);
    await subject.one(grantOf(organizationId, 100n, { reference: made.ids[0] ?? "" }));
    expect(await subject.one(redemptionOf(organizationId, made))).toEqual(UNUSABLE("redeemed"));
    const unknown = { ...made, ids: ["vou_unknown"] };
    expect(await subject.one(redemptionOf(organizationId, unknown))).toEqual(UNUSABLE("revoked"));
    expect(await subject.one(redemptionOf("org_unknown", made))).toEqual({ outcome: "unknown_organization" });
    expect(await granted(organizationId)).toBe(100n);
  });
}

const ACTION = fc.record({
  /** The organizations that redeem at once, each on one of two instances; none: the batch is revoked. */
  by: fc.array(fc.record({ organization: fc.nat(2), instance: fc.nat(1), voucher: fc.nat(3) }), { maxLength: 6 }),
  isRevoked: fc.boolean(),
});

function raceCases(subject: Subject, both: () => readonly [Books, Books], granted: Granted): void {
  test("one of 40 concurrent redemptions of a code, by 8 organizations on two instances, is granted", async () => {
    for (let round = 0; round < 5; round += 1) {
      const organizations = await Promise.all(Array.from({ length: 8 }, () => subject.organization()));
      const made = await voucherBatch(subject);
      const outcomes = await Promise.all(
        Array.from({ length: 40 }, (_, index) => {
          const transition = redemptionOf(organizations[index % 8] ?? "", made);
          return one(both()[index < 20 ? 0 : 1], transition, "durable");
        }),
      );
      const first = outcomes.filter((outcome) => outcome.outcome === "granted" && !outcome.repeated);
      expect(first).toHaveLength(1);
      expect(new Set(outcomes.flatMap((one) => (one.outcome === "unusable" ? one.reason : [])))).toEqual(
        new Set(["redeemed"]),
      );
      const sums = await Promise.all(organizations.map(granted));
      expect(sums.toSorted()).toEqual([0n, 0n, 0n, 0n, 0n, 0n, 0n, 100n]);
      for (const id of organizations) await subject.expectSound(id);
    }
  });

  test("batches that name vouchers and organizations in opposite orders all succeed", async () => {
    const organizations = await Promise.all(Array.from({ length: 6 }, () => subject.organization()));
    const made = await voucherBatch(subject, { count: 6 });
    const batches = Array.from({ length: 20 }, (_, index) => {
      const transitions: Transition[] = organizations.map((id, at) => redemptionOf(id, made, (at + index) % 6));
      return index % 2 === 0 ? transitions : transitions.reverse();
    });
    const outcomes = await Promise.all(
      batches.map((batch, index) => both()[index % 2 === 0 ? 0 : 1].apply("durable", batch)),
    );
    const known = outcomes.flat() as Outcomes["redeem"][];
    expect(known.filter((outcome) => outcome.outcome === "granted" && !outcome.repeated)).toHaveLength(6);
    expect((await Promise.all(organizations.map(granted))).reduce((sum = 0n, one = 0n) => sum + one, 0n)).toBe(600n);
    for (const id of organizations) await subject.expectSound(id);
  });

  test("any order of redemptions and revocations grants each voucher at most once", { timeout: 600_000 }, async () => {
    const runs = subject.store.kind === "sqlite" ? 100 : Math.max(10, countOf("changes"));
    await fc.assert(
      fc.asyncProperty(fc.array(ACTION, { minLength: 1, maxLength: 5 }), async (actions) => {
        const organizations = await Promise.all([1, 2, 3].map(() => subject.organization()));
        const made = await voucherBatch(subject, { count: 4 });
        for (const { by, isRevoked } of actions) {
          const redemptions = by.map(({ organization, instance, voucher }) =>
            one(both()[instance as 0 | 1], redemptionOf(organizations[organization] ?? "", made, voucher), "durable"),
          );
          await Promise.all([...redemptions, isRevoked && revokeVouchers(subject, made.batch.id)]);
        }
        const rows = await subject.store.vouchers.list(made.batch.id, { after: null, limit: 10 });
        const redeemed = rows.filter(({ organizationId }) => organizationId !== null);
        for (const id of organizations) {
          const own = redeemed.filter(({ organizationId }) => organizationId === id);
          expect(await granted(id)).toBe(100n * BigInt(own.length));
          await subject.expectSound(id);
        }
        const wasRevoked = actions.some(({ isRevoked }) => isRevoked);
        expect(rows.filter(({ isRevoked }) => isRevoked)).toHaveLength(wasRevoked ? 4 - redeemed.length : 0);
        expect(await violationsOf(subject, made.batch.id)).toEqual([]);
      }),
      { numRuns: runs },
    );
  });
}

/** Returns the violations of the whole store that name a batch. */
async function violationsOf({ books }: Subject, batchId: string) {
  return (await books.verifyStore()).list.filter(({ message }) => message.includes(batchId));
}

function damageCases(subject: Subject): void {
  test("a voucher that grants twice, for another organization, or under changed terms is found", async () => {
    const [organizationId, other] = [await subject.organization(), await subject.organization()];
    const made = await voucherBatch(subject);
    const [first = "", second = ""] = made.ids;
    await subject.one(redemptionOf(organizationId, made));
    const violations = async (id: string) =>
      (await subject.books.verify(id)).violations.map(({ invariant }) => invariant);
    const damages: [string, string, number[]][] = [
      [`organization_id = '${other}'`, `organization_id = '${organizationId}'`, [20, 12]],
      ["organization_id = null, redeemed_at = null", `organization_id = '${organizationId}', redeemed_at = `, [20, 12]],
    ];
    const [{ redeemed_at: at } = {}] = await subject.read(`select redeemed_at from voucher where id = '${first}'`);
    for (const [damage, repair, invariants] of damages) {
      await subject.tamper(`update voucher set ${damage} where id = '${first}'`);
      expect(await violations(organizationId)).toEqual(invariants);
      await subject.tamper(`update voucher set ${repair.endsWith("= ") ? repair + at : repair} where id = '${first}'`);
    }
    await subject.tamper(`update voucher_batch set amount = 70 where id = '${made.batch.id}'`);
    expect(await violations(organizationId)).toEqual([20]);
    expect(await violationsOf(subject, made.batch.id)).toMatchObject([{ invariant: 12 }]);
    await subject.tamper(`update voucher_batch set amount = 100 where id = '${made.batch.id}'`);
    await subject.tamper(`update voucher set is_revoked = 1 where id = '${second}'`);
    expect(await violationsOf(subject, made.batch.id)).toMatchObject([{ invariant: 20 }]);
    await subject.tamper(`update voucher set is_revoked = 0 where id = '${second}'`);
    await subject.expectSound(organizationId);
    expect(await violationsOf(subject, made.batch.id)).toEqual([]);
  });
}
