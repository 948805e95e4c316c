import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { monthStart } from "../../src/api/time.ts";
import { endTopUp, setTopUp } from "../../src/operations/top-ups.ts";
import { Offers } from "../../src/payments/payments.ts";
import { holdOf } from "../stores/fixture.ts";
import { STORES } from "../support/opened-stores.ts";
import { CREDIT, DAY_MS, HOUR_MS, SECOND_MS, TERMS, TopUpWorld } from "../support/top-ups.ts";

describe.each(STORES)("automatic top-ups on $kind", ({ open, skip }) => {
  describe.skipIf(skip)("with a stand-in for Stripe", () => {
    let world: TopUpWorld;
    beforeAll(async () => {
      world = await TopUpWorld.open(open);
    }, 180_000);
    afterAll(() => world.close());
    beforeEach(() => world.reset(100));

    test("a card is charged once when credits fall below the threshold, and not above it", async () => {
      const id = await world.organization();
      await world.grant(id, 50n * CREDIT);
      await world.sweep();
      expect(world.intents(id)).toEqual([]);
      await world.book(holdOf(id, 1n));
      await world.sweep();
      await world.sweep();
      expect(world.intents(id)).toMatchObject([{ status: "succeeded" }]);
      expect(await world.payments(id)).toMatchObject([
        { credits: 100n * CREDIT, granted: 100n * CREDIT, amount: 1_000n },
      ]);
      expect(await world.shown(id)).toMatchObject({
        ...{ status: "on", reason: null, threshold: 50, amount: 10, monthly_maximum: 30, currency: "eur" },
        ...{ charged_this_month: 10, card: { brand: "visa" } },
      });
      const form = Object.fromEntries(world.intents(id)[0]?.form ?? []);
      expect(form).toMatchObject({ amount: "1000", currency: "eur", "payment_method_types[0]": "card" });
      expect(form.customer).toMatch(/^cus_/);
      expect(form.payment_method).toMatch(/^pm_/);
      await world.expectSound(id);
    });

    test("a month's charges stop at the maximum, which is told once, and go on in the next month", async () => {
      const id = await world.organization({ threshold: 1_000 });
      world.nowMs = monthStart(world.nowMs, 1) + 19 * DAY_MS;
      for (let run = 0; run < 6; run += 1) {
        await world.sweep();
        world.nowMs += HOUR_MS;
      }
      expect(world.intents(id)).toHaveLength(3);
      expect(await world.events(id)).toMatchObject([
        { kind: "top_up.limit_reached", data: { charged_this_month: 30, amount: 10, monthly_maximum: 30 } },
      ]);
      await world.call(setTopUp, id, { ...TERMS, threshold: 1_000, monthly_maximum: 40 });
      await world.sweep();
      await world.sweep();
      expect(world.intents(id)).toHaveLength(4);
      expect(await world.events(id)).toHaveLength(2);
      world.nowMs += 15 * DAY_MS;
      await world.sweep();
      expect(world.intents(id)).toHaveLength(5);
      expect(await world.shown(id)).toMatchObject({ charged_this_month: 10 });
      await world.expectSound(id);
    });

    test.each(["card_declined", "authentication_required"] as const)(
      "a charge that is refused with %s pauses the top-up until it is set again or another card is saved",
      async (code) => {
        const id = await world.organization();
        world.stripe.card = code;
        await world.sweep();
        world.stripe.card = "charged";
        await world.sweep();
        world.nowMs += DAY_MS;
        await world.sweep();
        expect(world.intents(id)).toMatchObject([{ status: "canceled" }]);
        expect(await world.shown(id)).toMatchObject({ status: "paused", reason: code, charged_this_month: 0 });
        expect(await world.events(id)).toMatchObject([{ kind: "top_up.paused", data: { reason: code } }]);
        await world.saveCard(id);
        await world.sweep();
        expect(await world.shown(id)).toMatchObject({ status: "on", reason: null, charged_this_month: 10 });
        expect(world.intents(id).map(({ status }) => status)).toEqual(["canceled", "succeeded"]);
        await world.expectSound(id);
      },
    );

    test("a card that was removed at Stripe pauses the top-up, before and after its PaymentIntent is made", async () => {
      const id = await world.organization();
      world.stripe.card = "removed";
      await world.sweep();
      expect(await world.shown(id)).toMatchObject({ status: "paused", reason: "resource_missing" });
      expect(world.intents(id)).toEqual([]);
      world.stripe.card = "charged";
      await world.call(setTopUp, id, TERMS);
      world.stripe.onConfirm = async () => {
        world.stripe.card = "removed";
      };
      await world.sweep();
      expect(await world.shown(id)).toMatchObject({ status: "paused", reason: "resource_missing" });
      expect(world.intents(id)).toMatchObject([{ status: "canceled" }]);
      await world.expectSound(id);
    });

    test("a charge that settles later is booked when it does, and nothing is charged meanwhile", async () => {
      const [paid, declined] = [await world.organization(), await world.organization()];
      world.stripe.card = "processing";
      await world.sweep();
      world.nowMs += 2 * DAY_MS;
      await world.sweep();
      for (const id of [paid, declined]) expect(world.intents(id)).toMatchObject([{ status: "processing" }]);
      world.stripe.settle(String(world.intents(paid)[0]?.id), "succeeded");
      world.stripe.settle(String(world.intents(declined)[0]?.id), "requires_payment_method");
      world.nowMs += HOUR_MS;
      await world.sweep();
      expect(await world.balance(paid)).toMatchObject({ available: 100n * CREDIT });
      expect(await world.shown(declined)).toMatchObject({ status: "paused", reason: "card_declined" });
      expect(world.intents(declined)).toMatchObject([{ status: "canceled" }]);
    });

    test("the event of a charge books it as the sweep does", async () => {
      const id = await world.organization();
      await world.sweep({ faults: { confirm: "after" } });
      const [intent] = world.intents(id);
      expect(intent).toMatchObject({ status: "succeeded" });
      await world.deliver(world.stripe.event("payment_intent.succeeded", String(intent?.id)));
      await world.deliver(world.stripe.event("payment_intent.succeeded", String(intent?.id)));
      expect(await world.payments(id)).toMatchObject([{ granted: 100n * CREDIT }]);
      expect(await world.state(id)).toMatchObject({ pending: { paymentId: intent?.id } });
      world.nowMs += DAY_MS;
      await world.sweep();
      expect(await world.state(id)).toMatchObject({ pending: undefined });
      expect(world.intents(id)).toHaveLength(1);
      await world.expectSound(id);
    });

    test("a refund of a charge takes its credits back and pauses the top-up, so that nothing is charged again", async () => {
      const id = await world.organization();
      await world.sweep();
      const intent = String(world.intents(id)[0]?.id);
      world.stripe.refund(intent, 600);
      await world.deliver(world.stripe.event("charge.refunded", intent));
      await world.sweep();
      expect(await world.balance(id)).toMatchObject({ available: 40n * CREDIT });
      expect(await world.shown(id)).toMatchObject({ status: "paused", reason: "refunded" });
      world.nowMs += SECOND_MS;
      await world.call(setTopUp, id, TERMS);
      await world.sweep();
      expect(world.intents(id)).toHaveLength(2);
      await world.expectSound(id);
    });

    test("an organization that is paused, closed or switched off is not charged", async () => {
      const ids = [await world.organization(), await world.organization(), await world.organization()];
      await world.change(String(ids[0]), "paused");
      await world.change(String(ids[1]), "closed");
      await world.call(endTopUp, String(ids[2]));
      await world.sweep();
      for (const id of ids) expect(world.intents(id)).toEqual([]);
      await world.change(String(ids[0]), "active");
      await world.sweep();
      expect(world.intents(String(ids[0]))).toHaveLength(1);
    });

    test("a charge that is not wanted any more is canceled instead of confirmed", async () => {
      const id = await world.organization();
      // The node ends before it confirms.
      await world.sweep({ faults: { confirm: "before" } });
      expect(world.intents(id)).toMatchObject([{ status: "requires_confirmation" }]);
      await world.call(endTopUp, id);
      world.nowMs += HOUR_MS;
      await world.sweep();
      expect(world.intents(id)).toMatchObject([{ status: "canceled" }]);
      expect(await world.shown(id)).toMatchObject({ status: "off", reason: null, charged_this_month: 0 });
      await world.expectSound(id);
    });

    test("a price that is not offered any more, or in another currency, pauses the top-up", async () => {
      const others = [{ currency: "usd" }, { automaticTax: true }, { packages: [], customAmount: undefined }];
      for (const other of others) {
        const id = await world.organization();
        await world.sweep({ offers: new Offers({ ...world.settings, ...other } as never) });
        expect(await world.shown(id)).toMatchObject({ status: "paused", reason: "offer_changed" });
        expect(world.intents(id)).toEqual([]);
      }
    });

    test.each([
      ["a price that is not offered", { amount: 7.001 }, /expected one of these/],
      ["a maximum below the price", { monthly_maximum: 9 }, /the amount of one charge or more/],
      ["a maximum with too many decimals", { monthly_maximum: 30.001 }, /a valid amount of money in EUR/],
      ["a threshold with too many decimals", { threshold: 0.0000001 }, /at most 6 decimals/],
    ])("%s is refused", async (_what, terms, message) => {
      const id = await world.organization();
      await expect(world.call(setTopUp, id, { ...TERMS, ...terms })).rejects.toThrow(message);
    });

    test("an older card, a session of the other mode and one of another product replace no card", async () => {
      const id = await world.organization();
      const first = await world.saveCard(id);
      await world.saveCard(id);
      const { card } = await world.shown(id);
      await world.deliver(first);
      await world.saveCard(id, { livemode: true });
      await world.saveCard(id, { status: "expired" });
      await world.saveCard(id, { metadata: {} });
      expect(await world.shown(id)).toMatchObject({ card });
      expect(world.logged.map(({ reason }) => reason)).toEqual([
        "its session is of the other mode, live or test",
        "its session is expired",
        "this service did not make its session",
      ]);
    });

    test("a lost answer is asked for again, and only the PaymentIntent that is stored is confirmed", async () => {
      const id = await world.organization();
      world.stripe.faults.push("answer_lost");
      await world.sweep();
      expect(world.intents(id)).toMatchObject([{ status: "succeeded" }]);
      await world.book(holdOf(id, 99n * CREDIT));
      await world.sweep({ faults: { createTopUp: "after" } });
      world.nowMs += DAY_MS;
      await world.sweep();
      // The first PaymentIntent of the charge is never confirmed.
      expect(world.intents(id).map(({ status }) => status)).toEqual([
        "succeeded",
        "requires_confirmation",
        "succeeded",
      ]);
      expect(await world.payments(id)).toHaveLength(2);
      await world.expectSound(id);
    });

    test.each(["failing", "silent", "odd", "closing"] as const)(
      "while Stripe is %s, nothing is charged, and the charge goes on later",
      { timeout: 180_000 },
      async (mode) => {
        const id = await world.organization();
        const hasty = { api: world.apiWithin(300) };
        world.stripe.mode = mode;
        await world.sweep(hasty);
        expect(await world.shown(id)).toMatchObject({ status: "on", charged_this_month: 10 });
        expect(world.logged).toMatchObject([{ err: { code: "payment_provider_unavailable" }, organizationId: id }]);
        world.stripe.mode = "ok";
        await world.sweep(hasty);
        expect(await world.payments(id)).toEqual([]);
        world.nowMs += 31 * SECOND_MS;
        await world.sweep(hasty);
        expect(await world.payments(id)).toHaveLength(1);
        expect(world.intents(id).filter(({ status }) => status === "succeeded")).toHaveLength(1);
        await world.expectSound(id);
      },
    );

    test("a node that stops after it created a PaymentIntent does not confirm it beside that of another node", async () => {
      const id = await world.organization({ threshold: 1_000 });
      const [created, resumed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const slow = world.apiWithin(60_000);
      const create = slow.createTopUp.bind(slow);
      slow.createTopUp = async (...input) => {
        const made = await create(...input);
        created.resolve();
        await resumed.promise;
        return made;
      };
      const stopped = world.sweep({ api: slow });
      await created.promise;
      world.nowMs += DAY_MS;
      await world.sweep({ store: world.opened.other });
      resumed.resolve();
      await stopped;
      expect(world.intents(id).map(({ status }) => status)).toEqual(["requires_confirmation", "succeeded"]);
      world.expectCharges(id);
      await world.expectSound(id);
    });

    test("two nodes that sweep at once charge once", { timeout: 180_000 }, async () => {
      for (let run = 0; run < 20; run += 1) {
        const id = await world.organization();
        await Promise.all([
          world.sweep(),
          world.sweep({ store: world.opened.other }),
          world.sweep(),
          world.sweep({ store: world.opened.other }),
        ]);
        world.nowMs += 31 * SECOND_MS;
        await world.sweep();
        expect(world.intents(id).map(({ status }) => status)).toEqual(["succeeded"]);
        await world.expectSound(id);
      }
    });
  });
});
