import fc from "fast-check";
import { Stripe } from "stripe";
import { v7 } from "uuid";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { eventText } from "../../src/admin/event-texts.ts";
import type { HoldTransition, PaymentRow } from "../../src/credits/books.ts";
import type { BookCredits } from "../../src/ledger/commit-queue.ts";
import { collectDebts, Payments, type PaymentsOptions } from "../../src/payments/payments.ts";
import { StripeApi } from "../../src/payments/stripe.ts";
import { auditOf, grantOf, holdOf, randomId, releaseOf, settleOf } from "../stores/fixture.ts";
import { sidesOf } from "../stores/payments.ts";
import { countOf, seedOfRun, timeoutOf } from "../support/counts.ts";
import { type Opened, STORES } from "../support/opened-stores.ts";
import { StripeStandIn, signatureOf, stripeSettings } from "../support/stripe.ts";

const [EUR_10, CREDITS] = [1_000, 100_000_000n];
const RUNS = countOf("deliveries");

const KINDS = STORES.map((store) => ({ ...store, runs: store.kind === "SQLite" ? RUNS : Math.ceil(RUNS / 25) }));

describe.each(KINDS)("payments on $kind", ({ open, runs, skip }) => {
  describe.skipIf(skip)("with a stand-in for Stripe", () => {
    let opened: Opened;
    let stripe: StripeStandIn;
    let api: StripeApi;
    let logged: { level: string; fields: Record<string, unknown>; text: string }[];
    beforeAll(async () => {
      [opened, stripe] = [await open(), await new StripeStandIn().start()];
      api = apiOf(stripe);
    }, 60_000);
    afterAll(async () => {
      await stripe.close();
      await opened.close();
    });
    beforeEach(() => {
      stripe.mode = "ok";
      logged = [];
    });
    const book: BookCredits = async (transition) =>
      (await opened.store.books.apply("durable", [transition]))[0] as never;
    const note = (level: string) => (fields: object, text: string) =>
      void logged.push({ level, fields: fields as Record<string, unknown>, text });
    const log = { debug() {}, info: note("info"), warn: note("warn"), error: note("error") };
    const paymentsOf = (over: Partial<PaymentsOptions> = {}) => {
      const { accounts, payments: rows, topUps } = opened.store;
      const parts = { api, rows, topUps, accounts, book, log, clock: Date.now, newId: () => v7() };
      return new Payments({ ...parts, ...over });
    };
    const organization = async () => {
      const id = randomId("org");
      await opened.store.accounts.insertOrganization({ id, name: "Acme", kind: "standard", createdAtMs: Date.now() });
      return id;
    };
    const close = (id: string) => {
      const change = { status: "closed", pausesAllowances: true } as const;
      return opened.store.accounts.changeOrganization(id, change, () => auditOf(id, id));
    };
    const sessionOf = async (organizationId: string, price = BigInt(EUR_10)) => {
      return (await api.createSession({ organizationId, price, credits: CREDITS, returnUrl: "http://127.0.0.1/a" })).id;
    };
    const deliver = (payments: Payments, body: string, signature = signatureOf(body)) =>
      payments.receive(Buffer.from(body), signature);
    const answering = (payment: PaymentsOptions["api"]["payment"]): PaymentsOptions["api"] => {
      const subjectOf: StripeApi["subjectOf"] = (body, signature) => api.subjectOf(body, signature);
      return { subjectOf, savedCard: (sessionId) => api.savedCard(sessionId), payment };
    };
    const completed = (intent: string) => stripe.event("checkout.session.completed", intent);
    const payment = async (changes: Record<string, unknown> = {}) => {
      const organizationId = await organization();
      const session = await sessionOf(organizationId);
      return { organizationId, session, intent: stripe.pay(session, changes) };
    };
    const bookedPayment = async () => {
      const made = await payment();
      await deliver(paymentsOf(), completed(made.intent));
      return made;
    };
    const rowsOf = (organizationId: string) =>
      opened.store.payments.list({ organizationId, before: null, limit: 1_000 });
    const withheldEvents = async (of: string) => {
      const events = await opened.store.events.unroutedEvents(10_000);
      return events.filter(({ kind, organizationId }) => kind === "payment.withheld" && organizationId === of);
    };
    const balance = (organizationId: string) => opened.store.books.balance(organizationId);
    const expectSound = async (organizationId: string) => {
      expect((await opened.store.books.verify(organizationId)).violations).toEqual([]);
      const sides = sidesOf(await rowsOf(organizationId));
      expect(sides.in).toBe(sides.out);
    };

    test("a paid session is granted once, however often and at once its events arrive", async () => {
      const { organizationId, intent } = await payment();
      const payments = [paymentsOf(), paymentsOf()];
      const body = completed(intent);
      await Promise.all([0, 1, 0, 1, 0].map((index) => deliver(payments[index] as Payments, body)));
      await deliver(paymentsOf(), stripe.event("checkout.session.async_payment_succeeded", intent));
      expect(await balance(organizationId)).toMatchObject({ granted: CREDITS });
      expect(await rowsOf(organizationId)).toMatchObject([{ id: intent, amount: 1_000n, currency: "eur", grants: 1 }]);
      await expectSound(organizationId);
    });

    test("a session that is not paid yet grants nothing until it is", async () => {
      const { organizationId, session, intent } = await payment({ payment_status: "unpaid" });
      await deliver(paymentsOf(), completed(intent));
      expect(await balance(organizationId)).toMatchObject({ granted: 0n });
      stripe.pay(session);
      await deliver(paymentsOf(), stripe.event("checkout.session.async_payment_succeeded", intent));
      expect(await balance(organizationId)).toMatchObject({ granted: CREDITS });
    });

    test("taxes that are added to the price change neither the credits nor their share of a refund", async () => {
      const { organizationId, intent } = await payment({ amount_total: 1_190 });
      stripe.refund(intent, 595);
      await deliver(paymentsOf(), stripe.event("charge.refunded", intent));
      expect(await rowsOf(organizationId)).toMatchObject([{ credits: CREDITS, returned: CREDITS / 2n }]);
      await expectSound(organizationId);
    });

    test.each([
      ["without a signature of this endpoint", (body: string) => signatureOf(body, "whsec_of_another")],
      [
        "that is older than five minutes",
        (body: string) => signatureOf(body, undefined, Math.floor(Date.now() / 1000) - 301),
      ],
      ["with a malformed signature", () => "t=1,v1="],
      ["whose body was changed", (body: string) => signatureOf(`${body} `)],
    ])("a delivery %s is refused before Stripe is asked", async (_what, signature) => {
      const { organizationId, intent } = await payment();
      const body = completed(intent);
      const asked = stripe.asked;
      await expect(deliver(paymentsOf(), body, signature(body))).rejects.toMatchObject({
        status: 400,
        param: "Stripe-Signature",
      });
      expect(stripe.asked).toBe(asked);
      expect(await balance(organizationId)).toMatchObject({ granted: 0n });
    });

    test("a subscription that another product of the Stripe account sells is not logged", async () => {
      const object = { object: "checkout.session", id: "cs_1", mode: "subscription", payment_intent: null };
      await deliver(
        paymentsOf(),
        stripe.event("checkout.session.completed", (await payment()).intent, { data: { object } }),
      );
      expect(logged).toEqual([]);
    });

    const otherMetadata = { tollgate_organization: "org_x", tollgate_credits: "9" };
    test.each<[string, RegExp, Record<string, unknown>, ((intent: string) => string)?]>([
      ["has a live session", /other mode/, { livemode: true }],
      ["was paid in another currency", /usd instead of eur/, { currency: "usd" }],
      ["was paid in part", /999 were paid/, { amount_total: 999 }],
      ["was not made by this service", /did not make/, { metadata: {} }],
      ["has other metadata", /metadata/, { metadata: otherMetadata }],
      ["is of live mode", /other mode/, {}, (intent) => stripe.event("charge.refunded", intent, { livemode: true })],
      ["names no payment", /names no PaymentIntent/, {}, () => stripe.event("refund.created", "pi_?!")],
      ["is unknown to Stripe", /did not make/, {}, () => stripe.event("refund.created", "pi_unknown")],
    ])(
      "a payment that %s is named in the log, and books nothing",
      async (_what, reason, changes, bodyOf = completed) => {
        const { organizationId, intent } = await payment(changes);
        await deliver(paymentsOf(), bodyOf(intent));
        expect(logged.map(({ fields }) => fields.reason)).toEqual([expect.stringMatching(reason)]);
        expect(await rowsOf(organizationId)).toEqual([]);
      },
    );

    test("a payment of an unknown organization is named in the log, and books nothing", async () => {
      const intent = stripe.pay(await sessionOf("org_unknown"));
      await deliver(paymentsOf(), completed(intent));
      expect(logged).toMatchObject([
        { level: "error", fields: { paymentId: intent, reason: "there is no organization org_unknown" } },
      ]);
      expect(await opened.store.payments.find(intent)).toBeUndefined();
    });

    test("a payment of a closed organization is withheld, and the operator is told", async () => {
      const { organizationId, intent } = await payment();
      await close(organizationId);
      await deliver(paymentsOf(), completed(intent));
      expect(await rowsOf(organizationId)).toMatchObject([{ withheld: CREDITS, granted: 0n }]);
      expect(logged.at(-1)).toMatchObject({ level: "error", fields: { paymentId: intent } });
      expect(await withheldEvents(organizationId)).toHaveLength(1);
      stripe.refund(intent, EUR_10);
      await deliver(paymentsOf(), stripe.event("charge.refunded", intent));
      expect(await rowsOf(organizationId)).toMatchObject([{ withheld: 0n, returned: CREDITS, debt: 0n }]);
      await expectSound(organizationId);
    });

    test("a dispute that is won after the closing withholds only what was unspent", async () => {
      const { organizationId, intent } = await bookedPayment();
      const hold = holdOf(organizationId, 60_000_000n);
      for (const one of [hold, settleOf(hold, 60_000_000)]) await opened.store.books.apply("durable", [one]);
      stripe.dispute(intent, EUR_10);
      await deliver(paymentsOf(), stripe.event("charge.dispute.funds_withdrawn", intent));
      await close(organizationId);
      stripe.endDisputes(intent, "won");
      await deliver(paymentsOf(), stripe.event("charge.dispute.funds_reinstated", intent));
      expect(await rowsOf(organizationId)).toMatchObject([{ withheld: 40_000_000n, debt: 0n, returned: 0n }]);
      expect(await balance(organizationId)).toMatchObject({ available: 0n, spent: 60_000_000n });
      expect((await withheldEvents(organizationId)).map((one) => eventText(one, null))).toEqual([
        `The organization is closed, so 40 credits of the payment ${intent} were not granted. Refund the price of these credits in Stripe.`,
      ]);
      stripe.refund(intent, (EUR_10 * 40) / 100);
      await deliver(paymentsOf(), stripe.event("charge.refunded", intent));
      expect(await rowsOf(organizationId)).toMatchObject([{ withheld: 0n, debt: 0n, returned: 40_000_000n }]);
      await expectSound(organizationId);
    });

    test("an older answer of Stripe that is booked after a newer one is corrected", async () => {
      const { organizationId, intent } = await bookedPayment();
      stripe.refund(intent, EUR_10);
      const [asked, booked] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      let isFirst = true;
      const slow = answering(async (id) => {
        const stated = await api.payment(id);
        if (!isFirst) return stated;
        isFirst = false;
        asked.resolve();
        await booked.promise;
        return stated;
      });
      const refunded = deliver(paymentsOf({ api: slow }), stripe.event("charge.refunded", intent));
      await asked.promise;
      // The refund fails while its answer is on the way: the newer answer changes nothing.
      stripe.setRefunded(intent, 0);
      await deliver(paymentsOf(), stripe.event("refund.failed", intent));
      booked.resolve();
      await refunded;
      expect(await rowsOf(organizationId)).toMatchObject([{ refunded: 0n, returned: 0n, debt: 0n }]);
      expect(await balance(organizationId)).toMatchObject({ available: CREDITS });
      await expectSound(organizationId);
    });

    test("a payment whose answers change all the time fails, so that Stripe repeats the delivery", async () => {
      const { intent } = await payment();
      const changing = answering(async (id) => {
        stripe.refund(intent, 1);
        return api.payment(id);
      });
      await expect(deliver(paymentsOf({ api: changing }), completed(intent))).rejects.toMatchObject({
        message: "The payment was changed by other deliveries.",
      });
    });

    test("a closing that is committed while Stripe is asked withholds the payment", async () => {
      const { organizationId, intent } = await payment();
      const closing = paymentsOf({ book: (transition) => close(organizationId).then(() => book(transition)) });
      await deliver(closing, completed(intent));
      expect(await rowsOf(organizationId)).toMatchObject([{ withheld: CREDITS, granted: 0n }]);
      expect(await balance(organizationId)).toMatchObject({ available: 0n });
      expect(await withheldEvents(organizationId)).toHaveLength(1);
    });

    test("one payment that cannot be collected stops no other", async () => {
      const refunded = async () => {
        const { organizationId, intent } = await bookedPayment();
        const hold = holdOf(organizationId, CREDITS);
        await opened.store.books.apply("durable", [hold]);
        stripe.refund(intent, EUR_10);
        await deliver(paymentsOf(), stripe.event("charge.refunded", intent));
        await opened.store.books.apply("durable", [releaseOf(hold)]);
        return { organizationId, intent };
      };
      const both = [await refunded(), await refunded()].toSorted((one, other) => (one.intent < other.intent ? -1 : 1));
      const [broken, whole] = both as [(typeof both)[0], (typeof both)[0]];
      const failing: BookCredits = async (transition) => {
        if (transition.organizationId === broken.organizationId) throw new Error("broken row");
        return book(transition);
      };
      const options = { rows: opened.store.payments, clock: Date.now, newId: () => v7() };
      await expect(collectDebts({ ...options, book: failing })).rejects.toThrow("broken row");
      expect(await rowsOf(whole.organizationId)).toMatchObject([{ debt: 0n, revoked: CREDITS }]);
      expect(await rowsOf(broken.organizationId)).toMatchObject([{ debt: CREDITS }]);
      await collectDebts({ ...options, book });
      expect(await rowsOf(broken.organizationId)).toMatchObject([{ debt: 0n }]);
    });

    test("an inquiry takes nothing back, a dispute does until it is won", async () => {
      const { organizationId, intent } = await bookedPayment();
      stripe.dispute(intent, EUR_10, "warning_needs_response");
      await deliver(paymentsOf(), stripe.event("charge.dispute.created", intent));
      expect(await balance(organizationId)).toMatchObject({ available: CREDITS });
      stripe.dispute(intent, EUR_10);
      await deliver(paymentsOf(), stripe.event("charge.dispute.funds_withdrawn", intent));
      expect(await balance(organizationId)).toMatchObject({ available: 0n });
      stripe.endDisputes(intent, "won");
      await deliver(paymentsOf(), stripe.event("charge.dispute.funds_reinstated", intent));
      expect(await balance(organizationId)).toMatchObject({ available: CREDITS });
      await expectSound(organizationId);
    });

    test.each(["failing", "silent", "odd", "closing"] as const)(
      "while Stripe is %s, nothing is booked and the delivery fails, so that Stripe repeats it",
      { timeout: 180_000 },
      async (mode) => {
        const { organizationId, intent } = await payment();
        const body = completed(intent);
        const hasty = paymentsOf({ api: apiOf(stripe, 300) });
        stripe.mode = mode;
        await expect(deliver(hasty, body)).rejects.toMatchObject({ code: "payment_provider_unavailable", status: 503 });
        expect(await rowsOf(organizationId)).toEqual([]);
        stripe.mode = "ok";
        await deliver(hasty, body);
        expect(await balance(organizationId)).toMatchObject({ granted: CREDITS });
      },
    );

    test(`${runs} random orders of deliveries, repeats, crashes and spending keep the books`, {
      timeout: timeoutOf("deliveries", 1_200_000),
    }, async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(STEP, { minLength: 3, maxLength: 14 }), async (steps) => {
          const organizationId = await organization();
          await opened.store.books.apply("durable", [grantOf(organizationId, 7_000_000n)]);
          const intents: string[] = [];
          const holds: HoldTransition[] = [];
          const waiting: string[] = [];
          const anyOf = <One>(list: readonly One[], of: number) => list[of % Math.max(1, list.length)];
          for (const step of steps) {
            const intent = anyOf(intents, step.of);
            if (step.do === "pay") {
              intents.push(stripe.pay(await sessionOf(organizationId)));
              waiting.push(completed(intents.at(-1) ?? ""));
            } else if (step.do === "hold") {
              const hold = holdOf(organizationId, BigInt(step.amount) * 1_000_000n);
              const [held] = await opened.store.books.apply("holds", [hold]);
              if (held.outcome === "held") holds.push(hold);
            } else if (step.do === "end") {
              const [hold] = holds.splice(step.of % Math.max(1, holds.length), 1);
              const end = (held: HoldTransition) =>
                step.amount % 2 === 0 ? settleOf(held, Number(held.most)) : releaseOf(held);
              if (hold) await opened.store.books.apply("durable", [end(hold)]);
            } else if (step.do === "deliver") {
              const body = anyOf(waiting, step.of);
              if (body !== undefined)
                await deliver(step.amount % 3 === 0 ? crashing() : paymentsOf(), body).catch(ifCrashed);
            } else if (intent !== undefined) {
              if (step.do === "refund") stripe.refund(intent, step.amount * 10);
              if (step.do === "failRefund") stripe.setRefunded(intent, 0);
              if (step.do === "dispute") stripe.dispute(intent, step.amount * 10);
              if (step.do === "endDispute") stripe.endDisputes(intent, step.amount % 2 === 0 ? "won" : "lost");
              waiting.push(stripe.event(step.do === "refund" ? "charge.refunded" : "charge.dispute.updated", intent));
            }
            const sides = sidesOf(await rowsOf(organizationId));
            expect(sides.in).toBe(sides.out);
          }
          // In the end Stripe has delivered everything, in any order.
          for (const body of waiting.toReversed()) await deliver(paymentsOf(), body);
          const rows = await rowsOf(organizationId);
          expect(rows.map(({ id }) => id).sort()).toEqual(intents.toSorted());
          for (const hold of holds) await opened.store.books.apply("durable", [releaseOf(hold)]);
          await collectDebts({ rows: opened.store.payments, book, clock: Date.now, newId: () => v7() });
          await expectSound(organizationId);
          // Available, held and spent credits equal the net payments plus the debt.
          let paid = 7_000_000n;
          for (const intent of intents) {
            const { amount, refunded, disputed } = (await api.payment(intent)) as PaymentRow;
            const back = refunded + disputed < amount ? refunded + disputed : amount;
            paid += CREDITS - (CREDITS * back) / amount;
          }
          const { available = 0n, held = 0n, spent = 0n } = (await balance(organizationId)) ?? {};
          expect(available + held + spent).toBe(paid + (await opened.store.payments.debt(organizationId)));
        }),
        { numRuns: runs, seed: seedOfRun() },
      );
    });

    /** Payments of a process that dies after its commit: Stripe gets no answer. */
    const crashing = () =>
      paymentsOf({ book: (transition) => book(transition).then(() => Promise.reject(new Error("crashed"))) });
    const ifCrashed = (error: Error) => expect(error.message).toBe("crashed");
  });
});

function apiOf(stripe: StripeStandIn, requestTimeoutMs = 60_000): StripeApi {
  return new StripeApi({ Client: Stripe, settings: stripeSettings(stripe.url), proxyVariables: {}, requestTimeoutMs });
}

const STEP = fc.record({
  do: fc.constantFrom("pay", "deliver", "deliver", "refund", "failRefund", "dispute", "endDispute", "hold", "end"),
  of: fc.nat(9),
  amount: fc.integer({ min: 1, max: 100 }),
});
