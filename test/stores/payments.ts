import fc from "fast-check";
import { expect, test } from "vitest";
import type { HoldTransition, PaymentRow, PaymentTransition } from "../../src/credits/books.ts";
import { openDebt } from "../../src/credits/payments.ts";
import { countOf } from "../support/counts.ts";
import { auditOf, grantOf, holdOf, paymentOf, randomId, releaseOf, type Subject, settleOf } from "./fixture.ts";

/** Both sides of the invariant: paid and owed credits, and those that were granted, paid back or withheld. */
export function sidesOf(payments: readonly PaymentRow[]) {
  const sum = (amountOf: (row: PaymentRow) => bigint) => payments.reduce((all, row) => all + amountOf(row), 0n);
  return {
    in: sum(({ credits }) => credits) + sum(openDebt),
    out: sum(({ granted, revoked, returned, withheld }) => granted - revoked + returned + withheld),
  };
}

export function paymentCases(subject: Subject): void {
  bookingCases(subject);
  debtCases(subject);
  operatorCases(subject);
  revokedCases(subject);
  orderCase(subject);
}

const listOf = (subject: Subject, organizationId: string) =>
  subject.store.payments.list({ organizationId, before: null, limit: 1_000 });

/** Returns a function that books a statement of a payment, which must be accepted. */
const bookingIn = (subject: Subject) => async (transition: PaymentTransition) => {
  const outcome = await subject.one(paymentOf(transition.organizationId, transition.id, transition));
  if (outcome.outcome !== "booked") throw new Error(outcome.outcome);
  return outcome.payment;
};

function bookingCases(subject: Subject): void {
  const book = bookingIn(subject);

  test("a payment is granted once under its id, and a stale state of it is refused", async () => {
    const organizationId = await subject.organization();
    const payment = paymentOf(organizationId, randomId("pi"), { credits: 70n });
    expect(await book(payment)).toMatchObject({ granted: 70n, grants: 1, revision: 1 });
    expect(await subject.one(payment)).toEqual({ outcome: "outdated" });
    expect(await subject.one({ ...payment, revision: 1 })).toMatchObject({ outcome: "booked", changed: false });
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 70n, available: 70n });
    const [entry] = await subject.statement(organizationId);
    expect(entry).toMatchObject({ kind: "grant", grant: { reference: payment.id, amount: 70n } });
    await subject.expectSound(organizationId);
  });

  test("two services that book the same payment at once grant it once", async () => {
    const organizationId = await subject.organization();
    const payment = paymentOf(organizationId, randomId("pi"), { credits: 70n });
    const outcomes = await Promise.all([1, 2, 3, 4].map(() => subject.one(payment)));
    expect(outcomes.filter(({ outcome }) => outcome === "booked")).toHaveLength(1);
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 70n });
  });

  test("no payment is booked for two organizations", async () => {
    const [one, other] = [await subject.organization(), await subject.organization()];
    const id = randomId("pi");
    await book(paymentOf(one, id, { credits: 70n }));
    await expect(subject.one(paymentOf(other, id, { credits: 70n }))).rejects.toThrow();
    expect(await subject.books.balance(other)).toMatchObject({ granted: 0n });
  });

  test("a payment that an operator granted by hand under its id is not granted again", async () => {
    const organizationId = await subject.organization();
    const id = randomId("pi");
    const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: id };
    await subject.one({ kind: "grant", organizationId, grantId: "grant_by_hand", amount: 70n, ...terms });
    const outcome = await subject.one(paymentOf(organizationId, id, { credits: 70n }));
    expect(outcome).toEqual({ outcome: "granted_before", grantId: "grant_by_hand" });
    expect(await listOf(subject, organizationId)).toEqual([]);
  });
}

function debtCases(subject: Subject): void {
  const book = bookingIn(subject);
  test("a refund takes back what is unspent; the rest is a debt, which the next payment covers first", async () => {
    const organizationId = await subject.organization();
    const first = paymentOf(organizationId, randomId("pi"), { credits: 100n });
    await book(first);
    const hold = holdOf(organizationId, 60n);
    await subject.one(hold);
    await subject.one(settleOf(hold, 60));
    expect(await book({ ...first, refunded: 500n, revision: 1 })).toMatchObject({ revoked: 40n, debt: 10n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 0n, spent: 60n });
    expect(await subject.store.payments.debt(organizationId)).toBe(10n);
    const second = await book(paymentOf(organizationId, randomId("pi"), { credits: 100n }));
    expect(second).toMatchObject({ covered: 10n, covers: [{ grantId: first.id, amount: 10n }], granted: 90n });
    expect(await subject.store.payments.debt(organizationId)).toBe(0n);
    await subject.expectSound(organizationId);
  });

  test("a dispute that is won ends its own debt, and grants again what was taken back or covered", async () => {
    const organizationId = await subject.organization();
    const first = paymentOf(organizationId, randomId("pi"), { credits: 100n });
    await book(first);
    const hold = holdOf(organizationId, 60n);
    await subject.one(hold);
    await subject.one(settleOf(hold, 60));
    await book({ ...first, disputed: 1_000n, revision: 1 });
    await book(paymentOf(organizationId, randomId("pi"), { credits: 50n }));
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 0n });
    expect(await book({ ...first, disputed: 0n, revision: 3 })).toMatchObject({ debt: 50n, debtCovered: 50n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 90n, spent: 60n });
    await subject.expectSound(organizationId);
  });

  test("credits that come back from a hold after the refund are found and taken back", async () => {
    const organizationId = await subject.organization();
    const { payment, hold } = await heldPayment(subject, organizationId);
    const refund = { ...payment, refunded: 1_000n };
    expect(await book({ ...refund, revision: 1 })).toMatchObject({ revoked: 0n, debt: 100n });
    const found = async () => (await subject.store.payments.collectable(1_000)).map(({ id }) => id);
    expect(await found()).not.toContain(payment.id);
    await subject.one(releaseOf(hold));
    expect(await found()).toContain(payment.id);
    expect(await book({ ...refund, revision: 2 })).toMatchObject({ revoked: 100n, debt: 0n });
    expect(await found()).not.toContain(payment.id);
    await subject.expectSound(organizationId);
  });
}

function operatorCases(subject: Subject): void {
  const book = bookingIn(subject);
  test("what an operator revoked of a payment's grant counts when the payment is refunded", async () => {
    const organizationId = await subject.organization();
    const payment = paymentOf(organizationId, randomId("pi"), { credits: 100n });
    await book(payment);
    await subject.one(revocation(organizationId, 100n));
    expect(await book({ ...payment, refunded: 1_000n, revision: 1 })).toMatchObject({ revoked: 100n, debt: 0n });
  });

  test("a payment of a closed organization is withheld, and what is refunded of it ends that", async () => {
    const organizationId = await subject.organization();
    await closeOrganization(subject, organizationId);
    const payment = paymentOf(organizationId, randomId("pi"), { credits: 100n });
    expect(await book(payment)).toMatchObject({ withheld: 100n, granted: 0n });
    expect(await book({ ...payment, refunded: 250n, revision: 1 })).toMatchObject({ withheld: 75n, returned: 25n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 0n });
    await subject.expectSound(organizationId);
  });
}

function revokedCases(subject: Subject): void {
  const book = bookingIn(subject);
  /** A payment of 100 that is refunded while a hold has all of it; the hold then returns it, and an operator revokes it. */
  const revokedDebt = async () => {
    const organizationId = await subject.organization();
    const { payment, hold } = await heldPayment(subject, organizationId);
    await book({ ...payment, refunded: 1_000n, revision: 1 });
    await subject.one(releaseOf(hold));
    await subject.one(revocation(organizationId, null));
    return payment;
  };

  test("a debt that an operator's revocation paid is found and ends", async () => {
    const { organizationId, id } = await revokedDebt();
    await collectDebts(subject, organizationId);
    expect(await subject.store.payments.find(id)).toMatchObject({ debt: 0n, revoked: 100n });
    await subject.expectSound(organizationId);
  });

  test("a debt that a revocation paid is not covered by the next payment, even before it is found", async () => {
    const { organizationId, id } = await revokedDebt();
    const next = await book(paymentOf(organizationId, randomId("pi"), { credits: 100n }));
    expect(next).toMatchObject({ covered: 0n, granted: 100n });
    expect(await subject.store.payments.find(id)).toMatchObject({ debt: 0n, debtCovered: 0n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 100n });
    await subject.expectSound(organizationId);
  });

  test("the next payment takes back what holds returned before it covers the rest of a debt", async () => {
    const organizationId = await subject.organization();
    const { payment, hold } = await heldPayment(subject, organizationId);
    await book({ ...payment, refunded: 1_000n, revision: 1 });
    await subject.one(settleOf(hold, 30));
    const next = await book(paymentOf(organizationId, randomId("pi"), { credits: 100n }));
    expect(next).toMatchObject({ covered: 30n, granted: 70n });
    expect(await subject.store.payments.find(payment.id)).toMatchObject({ revoked: 70n, debt: 30n, debtCovered: 30n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 70n, spent: 30n });
    await subject.expectSound(organizationId);
  });

  test("a grant that is made again needs no reference, also where an operator has used the one of its name", async () => {
    const organizationId = await subject.organization();
    const payment = paymentOf(organizationId, randomId("pi"), { credits: 100n });
    await book(payment);
    await subject.one(grantOf(organizationId, 7n, { reference: `${payment.id}/2` }));
    await book({ ...payment, disputed: 1_000n, revision: 1 });
    expect(await book({ ...payment, revision: 2 })).toMatchObject({ grants: 2, granted: 200n, revoked: 100n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 107n });
    await subject.expectSound(organizationId);
  });

  test("a payment that granted nothing at first grants later, although its id was used as a reference", async () => {
    const organizationId = await subject.organization();
    const payment = paymentOf(organizationId, randomId("pi"), { credits: 100n, refunded: 1_000n });
    await book(payment);
    await subject.one(grantOf(organizationId, 7n, { reference: payment.id }));
    expect(await book({ ...payment, refunded: 0n, revision: 1 })).toMatchObject({ grants: 1, granted: 100n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 107n });
    await subject.expectSound(organizationId);
  });
}

/** Books a payment of 100 credits, and holds all of them. */
async function heldPayment(subject: Subject, organizationId: string) {
  const payment = paymentOf(organizationId, randomId("pi"), { credits: 100n });
  await bookingIn(subject)(payment);
  const hold = holdOf(organizationId, 100n);
  await subject.one(hold);
  return { payment, hold };
}

/** Takes back what holds have returned of refunded payments, as the sweep does. */
async function collectDebts(subject: Subject, organizationId: string): Promise<void> {
  const found = await subject.store.payments.collectable(100_000);
  for (const payment of found.filter((one) => one.organizationId === organizationId)) {
    await bookingIn(subject)(paymentOf(organizationId, payment.id, payment));
  }
}

async function closeOrganization({ store }: Subject, id: string): Promise<void> {
  await store.accounts.changeOrganization(id, { status: "closed", pausesAllowances: true }, () => auditOf(id, id));
}

function orderCase(subject: Subject): void {
  test("any order of payments, refunds, disputes and spending keeps the books", { timeout: 600_000 }, async () => {
    const runs = subject.store.kind === "sqlite" ? 400 : countOf("changes");
    await fc.assert(
      fc.asyncProperty(fc.array(ACTION, { minLength: 1, maxLength: 25 }), async (actions) => {
        const organizationId = await subject.organization(5n);
        const world = new World(subject, organizationId);
        for (const action of actions) {
          await world.play(action);
          const sides = sidesOf(await listOf(subject, organizationId));
          expect(sides.in).toBe(sides.out);
        }
        await world.end();
        await subject.expectSound(organizationId);
      }),
      { numRuns: runs },
    );
  });
}

function revocation(organizationId: string, amount: bigint | null) {
  const id = randomId("rev");
  return {
    kind: "revoke",
    organizationId,
    adjustmentId: id,
    amount,
    grantId: null,
    reference: null,
    note: null,
  } as const;
}

const ACTION = fc.oneof(
  fc.record({ do: fc.constant("pay" as const), credits: fc.bigInt(1n, 100n) }),
  fc.record({ do: fc.constant("close" as const), of: fc.nat(9) }),
  fc.record({ do: fc.constant("collect" as const) }),
  fc.record({ do: fc.constant("state" as const), of: fc.nat(9), refunded: PART(), disputed: PART() }),
  fc.record({ do: fc.constant("repeat" as const), of: fc.nat(9) }),
  fc.record({ do: fc.constant("stale" as const), of: fc.nat(9), refunded: PART() }),
  fc.record({ do: fc.constant("hold" as const), amount: fc.bigInt(1n, 60n) }),
  fc.record({ do: fc.constant("settle" as const), of: fc.nat(9), tokens: fc.nat(60) }),
  fc.record({ do: fc.constant("release" as const), of: fc.nat(9) }),
  fc.record({ do: fc.constant("revoke" as const), amount: fc.bigInt(1n, 40n) }),
);
type Action = typeof ACTION extends fc.Arbitrary<infer One> ? One : never;

function PART() {
  return fc.constantFrom(0n, 1n, 333n, 500n, 1_000n);
}

/** An organization whose payments are stated in changing ways while it spends. */
class World {
  readonly #subject: Subject;
  readonly #organizationId: string;
  readonly #stated: PaymentTransition[] = [];
  readonly #holds: HoldTransition[] = [];
  /** Revoked by hand. */
  #revoked = 0n;

  constructor(subject: Subject, organizationId: string) {
    this.#subject = subject;
    this.#organizationId = organizationId;
  }

  async play(action: Action): Promise<void> {
    if (action.do === "pay") {
      this.#stated.push(paymentOf(this.#organizationId, randomId("pi"), { credits: action.credits }));
      await this.#state(this.#stated.length - 1);
    } else if (action.do === "hold") {
      const hold = holdOf(this.#organizationId, action.amount);
      if ((await this.#subject.one(hold)).outcome === "held") this.#holds.push(hold);
    } else if (action.do === "settle" || action.do === "release") await this.#end(action);
    else if (action.do === "collect") await collectDebts(this.#subject, this.#organizationId);
    else if (action.do === "close") {
      if (action.of === 0) await closeOrganization(this.#subject, this.#organizationId);
    } else if (action.do === "revoke") await this.#revoke(action.amount);
    else await this.#change(action);
  }

  /**
   * Ends all holds and collects. Then the customer has what was paid, less what was refunded or spent; the revocations by hand
   * take at most their amounts. A debt is at most what was spent of its payment's grants, or covered other debts.
   */
  async end(): Promise<void> {
    for (const hold of this.#holds.splice(0)) await this.#subject.one(releaseOf(hold));
    await collectDebts(this.#subject, this.#organizationId);
    const payments = await listOf(this.#subject, this.#organizationId);
    const { available = 0n, held = 0n, spent = 0n } = (await this.#subject.books.balance(this.#organizationId)) ?? {};
    const kept = payments.map(
      ({ credits, returned, withheld, ...row }) => credits - returned - withheld + openDebt(row),
    );
    const most = kept.reduce((sum, amount) => sum + amount, 5n) - spent;
    expect(available + held).toBeLessThanOrEqual(most);
    expect(available + held).toBeGreaterThanOrEqual(most - this.#revoked);
    for (const payment of payments) {
      if (openDebt(payment) === 0n) continue;
      const [row] = await this.#subject.read(
        `select sum(amount - revoked - remaining) as spent from credit_grant where id like 'grant_${payment.id}_%'`,
      );
      expect(openDebt(payment)).toBeLessThanOrEqual(BigInt(String(row?.spent ?? 0)) + payment.covered);
    }
  }

  async #revoke(amount: bigint): Promise<void> {
    const { outcome } = await this.#subject.one(revocation(this.#organizationId, amount));
    if (outcome === "revoked") this.#revoked += amount;
  }

  async #end(action: Extract<Action, { do: "settle" | "release" }>): Promise<void> {
    const [hold] = this.#holds.splice(action.of % Math.max(1, this.#holds.length), 1);
    if (hold === undefined) return;
    if (action.do === "release") await this.#subject.one(releaseOf(hold));
    else await this.#subject.one(settleOf(hold, Math.min(action.tokens, Number(hold.most))));
  }

  async #change(action: Extract<Action, { do: "state" | "repeat" | "stale" }>): Promise<void> {
    if (this.#stated.length === 0) return;
    const index = action.of % this.#stated.length;
    const stated = this.#stated[index] as PaymentTransition;
    if (action.do === "stale") {
      const { refunded } = action;
      const revision = (await this.#revision(stated.id)) - 1;
      expect(await this.#subject.one({ ...stated, refunded, revision })).toEqual({ outcome: "outdated" });
      return;
    }
    if (action.do === "state") {
      const { refunded, disputed } = action;
      this.#stated[index] = { ...stated, refunded, disputed };
    }
    await this.#state(index);
  }

  async #state(index: number): Promise<void> {
    const stated = this.#stated[index] as PaymentTransition;
    const made = paymentOf(this.#organizationId, stated.id, stated);
    const revision = await this.#revision(stated.id);
    const outcome = await this.#subject.one({ ...made, revision });
    expect(outcome.outcome).toBe("booked");
  }

  async #revision(id: string): Promise<number> {
    return (await this.#subject.store.payments.find(id))?.revision ?? 0;
  }
}
