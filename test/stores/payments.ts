import fc from "fast-check";
import { expect, test } from "vitest";
import type { HoldTransition, PaymentRow, PaymentTransition } from "../../src/credits/books.ts";
import { openDebt } from "../../src/credits/payments.ts";
import { countOf } from "../support/counts.ts";
import { holdOf, paymentOf, randomId, releaseOf, type Subject, settleOf } from "./fixture.ts";

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

  test("a payment is granted once under its id, and a stale statement of it is refused", async () => {
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
    const payment = paymentOf(organizationId, randomId("pi"), { credits: 100n });
    await book(payment);
    const hold = holdOf(organizationId, 100n);
    await subject.one(hold);
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
    const payment = paymentOf(organizationId, randomId("pi"), { credits: 100n, isClosed: true });
    expect(await book(payment)).toMatchObject({ withheld: 100n, granted: 0n });
    expect(await book({ ...payment, refunded: 250n, revision: 1 })).toMatchObject({ withheld: 75n, returned: 25n });
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 0n });
    await subject.expectSound(organizationId);
  });
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
  fc.record({ do: fc.constant("pay" as const), credits: fc.bigInt(1n, 100n), isClosed: fc.boolean() }),
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

  constructor(subject: Subject, organizationId: string) {
    this.#subject = subject;
    this.#organizationId = organizationId;
  }

  async play(action: Action): Promise<void> {
    if (action.do === "pay") {
      const { credits, isClosed } = action;
      this.#stated.push(paymentOf(this.#organizationId, randomId("pi"), { credits, isClosed }));
      await this.#state(this.#stated.length - 1);
    } else if (action.do === "hold") {
      const hold = holdOf(this.#organizationId, action.amount);
      if ((await this.#subject.one(hold)).outcome === "held") this.#holds.push(hold);
    } else if (action.do === "settle" || action.do === "release") await this.#end(action);
    else if (action.do === "revoke") await this.#subject.one(revocation(this.#organizationId, action.amount));
    else await this.#change(action);
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
