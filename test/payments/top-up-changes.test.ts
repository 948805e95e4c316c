import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { monthStart } from "../../src/api/time.ts";
import { saveCard, setTopUp } from "../../src/operations/top-ups.ts";
import { Offers } from "../../src/payments/payments.ts";
import { auditOf, grantOf, holdOf } from "../stores/fixture.ts";
import { STORES } from "../support/opened-stores.ts";
import { CREDIT, DAY_MS, HOUR_MS, SECOND_MS, TERMS, TopUpWorld } from "../support/top-ups.ts";

describe.each(STORES)("charges of automatic top-ups on $kind", ({ open, skip }) => {
  describe.skipIf(skip)("that meet a change or a failure", () => {
    let world: TopUpWorld;
    beforeAll(async () => {
      world = await TopUpWorld.open(open);
    }, 180_000);
    afterAll(() => world.close());
    beforeEach(() => world.reset(100));

    test("a node whose card is refused late does not end a charge that another node has made of a newer card", async () => {
      const id = await world.organization();
      const [asked, resumed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const slow = world.apiWithin(60_000);
      slow.createTopUp = async () => {
        asked.resolve();
        await resumed.promise;
        return { refused: "resource_missing" };
      };
      const late = world.sweep({ api: slow });
      await asked.promise;
      await world.saveCard(id);
      world.nowMs += 31 * SECOND_MS;
      // The other node ends after its confirmation, so that the charge is still pending.
      await world.sweep({ store: world.opened.other, faults: { confirm: "after" } });
      expect(world.intents(id)).toMatchObject([{ status: "succeeded" }]);
      resumed.resolve();
      await late;
      expect(await world.shown(id)).toMatchObject({ status: "on", reason: null, charged_this_month: 10 });
      world.nowMs += HOUR_MS;
      await world.sweep();
      expect(await world.state(id)).toMatchObject({ pending: undefined });
      expect(await world.shown(id)).toMatchObject({ status: "on", reason: null, charged_this_month: 10 });
      expect(world.intents(id)).toHaveLength(1);
      expect(await world.payments(id)).toHaveLength(1);
      await world.expectSound(id);
    });

    test.each([
      ["its PaymentIntent is made", { createTopUp: "before" as const }, ["succeeded"]],
      ["it is confirmed", { confirm: "before" as const }, ["canceled", "succeeded"]],
    ])("a charge whose terms change before %s is replaced by one on the new terms", async (_when, faults, states) => {
      world.nowMs = monthStart(world.nowMs) + 10 * DAY_MS;
      const id = await world.organization({ amount: 50, monthly_maximum: 50 });
      await world.sweep({ faults });
      await world.call(setTopUp, id, { ...TERMS, monthly_maximum: 10 });
      for (let run = 0; run < 3; run += 1) {
        world.nowMs += HOUR_MS;
        await world.sweep();
      }
      expect(world.intents(id).map(({ status }) => status)).toEqual(states);
      expect(world.intents(id, "succeeded")[0]?.form.get("amount")).toBe("1000");
      expect(await world.shown(id)).toMatchObject({ status: "on", reason: null, charged_this_month: 10 });
      await world.expectSound(id);
    });

    test("a charge above a lowered maximum is canceled", async () => {
      world.nowMs = monthStart(world.nowMs) + 10 * DAY_MS;
      const id = await world.organization();
      await world.sweep();
      await world.book(holdOf(id, 99n * CREDIT));
      await world.sweep({ faults: { confirm: "before" } });
      await world.call(setTopUp, id, { ...TERMS, monthly_maximum: 10 });
      world.nowMs += HOUR_MS;
      await world.sweep();
      await world.sweep();
      expect(world.intents(id).map(({ status }) => status)).toEqual(["succeeded", "canceled"]);
      expect(await world.shown(id)).toMatchObject({ status: "on", charged_this_month: 10, monthly_maximum: 10 });
    });

    test("a card that was replaced is not charged", async () => {
      const id = await world.organization();
      await world.sweep({ faults: { confirm: "before" } });
      await world.saveCard(id);
      world.nowMs += HOUR_MS;
      await world.sweep();
      await world.sweep();
      expect(world.intents(id).map(({ status }) => status)).toEqual(["canceled", "succeeded"]);
      const [first, second] = world.intents(id).map(({ form }) => form.get("payment_method"));
      expect(first).not.toBe(second);
      expect((await world.state(id))?.row.card?.id).toBe(second);
    });

    test("a charge that is confirmed in the next month counts for the next month", async () => {
      const id = await world.organization({ threshold: 1_000 });
      world.nowMs = monthStart(world.nowMs, 1) - HOUR_MS;
      await world.sweep({ faults: { confirm: "before" } });
      world.nowMs += 2 * HOUR_MS;
      for (let run = 0; run < 6; run += 1) {
        await world.sweep();
        world.nowMs += HOUR_MS;
      }
      expect(world.intents(id).map(({ status }) => status)).toEqual([
        "canceled",
        ...["succeeded", "succeeded", "succeeded"],
      ]);
      expect(await world.shown(id)).toMatchObject({ charged_this_month: 30 });
      world.expectCharges(id);
      await world.expectSound(id);
    });

    test("setting the top-up again or saving a card does not shorten the pause between attempts", async () => {
      const id = await world.organization();
      world.stripe.mode = "failing";
      await world.sweep();
      const { nextAtMs } = (await world.state(id))?.row ?? {};
      await world.call(setTopUp, id, { ...TERMS, threshold: 60 });
      expect((await world.state(id))?.row.nextAtMs).toBe(nextAtMs);
      world.stripe.mode = "ok";
      await world.saveCard(id);
      expect((await world.state(id))?.row.nextAtMs).toBe(nextAtMs);
    });

    test("a charge that Stripe cancels or that needs an action pauses the top-up once", async () => {
      const [canceled, waiting] = [await world.organization(), await world.organization()];
      await world.sweep({ faults: { confirm: "before" } });
      world.stripe.cancel(String(world.intents(canceled)[0]?.id));
      world.stripe.card = "requires_action";
      for (let run = 0; run < 5; run += 1) {
        world.nowMs += HOUR_MS;
        await world.sweep();
      }
      for (const [id, reason] of [
        [canceled, "requested_by_customer"],
        [waiting, "requires_action"],
      ] as const) {
        expect(world.intents(id)).toMatchObject([{ status: "canceled" }]);
        expect(await world.shown(id)).toMatchObject({ status: "paused", reason, charged_this_month: 0 });
        expect(await world.events(id)).toMatchObject([{ kind: "top_up.paused", data: { reason } }]);
      }
    });

    test("a charge that Stripe does not accept for a day pauses the top-up", async () => {
      const id = await world.organization();
      world.stripe.mode = "failing";
      await world.sweep();
      world.nowMs += 23 * HOUR_MS;
      await world.sweep();
      expect(await world.shown(id)).toMatchObject({ status: "on", charged_this_month: 10 });
      world.nowMs += 2 * HOUR_MS;
      await world.sweep();
      const reason = "payment_provider_unavailable";
      expect(await world.shown(id)).toMatchObject({ status: "paused", reason, charged_this_month: 0 });
      expect(await world.events(id)).toMatchObject([{ kind: "top_up.paused", data: { reason } }]);
      expect(world.intents(id)).toEqual([]);
    });

    test("a paid charge that was granted by hand pauses the top-up, and counts for the maximum", async () => {
      const id = await world.organization();
      await world.sweep({ faults: { confirm: "after" } });
      const [intent] = world.intents(id);
      const audit = { ...auditOf(id, id), action: "credits.grant", after: {} };
      await world.book({ ...grantOf(id, CREDIT), reference: String(intent?.id), audit });
      world.nowMs += HOUR_MS;
      await world.sweep();
      expect(await world.state(id)).toMatchObject({ pending: undefined });
      const paused = { status: "paused", reason: "not_booked", charged_this_month: 10 };
      expect(await world.shown(id)).toMatchObject(paused);
      expect(await world.events(id)).toMatchObject([{ kind: "top_up.paused", data: { reason: "not_booked" } }]);
      await world.call(setTopUp, id, TERMS);
      await world.sweep();
      expect(world.intents(id, "succeeded")).toHaveLength(2);
      await world.expectSound(id);
    });

    test("a charge that the account of the present key does not have pauses the top-up, and counts for the maximum", async () => {
      const id = await world.organization();
      await world.sweep({ faults: { confirm: "after" } });
      world.stripe.reset();
      world.nowMs += HOUR_MS;
      await world.sweep();
      expect(await world.state(id)).toMatchObject({ pending: undefined });
      const paused = { status: "paused", reason: "payment_missing", charged_this_month: 10 };
      expect(await world.shown(id)).toMatchObject(paused);
      await world.expectSound(id);
    });

    test("a node that stops ends its requests to Stripe, makes no further ones, and the charge goes on later", async () => {
      const id = await world.organization();
      world.stripe.mode = "silent";
      const before = world.stripe.asked;
      const { topUps } = world.node({ api: world.apiWithin(60_000) });
      const sweep = topUps.sweep();
      await vi.waitFor(() => expect(world.stripe.asked).toBe(before + 1), { timeout: 60_000 });
      await topUps.stop();
      await sweep;
      // The library would have asked again.
      expect(world.stripe.asked).toBe(before + 1);
      world.stripe.mode = "ok";
      await topUps.sweep();
      expect(world.intents(id)).toEqual([]);
      world.nowMs += HOUR_MS;
      await topUps.sweep();
      expect(world.intents(id)).toEqual([]);
      world.nowMs += HOUR_MS;
      await world.sweep();
      expect(world.intents(id)).toMatchObject([{ status: "succeeded" }]);
    });

    test("a refund of an earlier charge cancels one that is under way, and pauses the top-up", async () => {
      const id = await world.organization();
      await world.sweep();
      await world.book(holdOf(id, 99n * CREDIT));
      await world.sweep({ faults: { confirm: "before" } });
      const intent = String(world.intents(id)[0]?.id);
      world.stripe.refund(intent, 600);
      await world.deliver(world.stripe.event("charge.refunded", intent));
      world.nowMs += HOUR_MS;
      await world.sweep();
      await world.sweep();
      expect(world.intents(id).map(({ status }) => status)).toEqual(["succeeded", "canceled"]);
      expect(await world.shown(id)).toMatchObject({ status: "paused", reason: "refunded" });
      await world.expectSound(id);
    });

    test.each([
      ["is offered no more", { automaticTax: true }, { status: "paused", reason: "offer_changed" }, ["canceled"]],
      [
        "buys other credits",
        { packages: [{ amount: "10", credits: "90" }] },
        { status: "on" },
        ["canceled", "succeeded"],
      ],
    ])("a charge whose amount %s when it is continued is canceled", async (_what, change, shown, states) => {
      const id = await world.organization();
      await world.sweep({ faults: { confirm: "before" } });
      world.nowMs += HOUR_MS;
      const offers = new Offers({ ...world.settings, ...change });
      await world.sweep({ offers });
      await world.sweep({ offers });
      expect(world.intents(id).map(({ status }) => status)).toEqual(states);
      expect(await world.shown(id)).toMatchObject(shown);
      await world.expectSound(id);
    });

    test("a node whose clock was ahead delays no charge", async () => {
      const [failed, limited] = [await world.organization(), await world.organization({ monthly_maximum: 10 })];
      const { nowMs } = world;
      world.nowMs += 45 * DAY_MS;
      await world.sweep();
      for (const id of [failed, limited]) await world.book(holdOf(id, 99n * CREDIT));
      world.stripe.mode = "failing";
      await world.sweep();
      world.stripe.mode = "ok";
      world.nowMs = nowMs + 2 * HOUR_MS;
      await world.sweep();
      await world.sweep();
      expect(world.intents(failed, "succeeded")).toHaveLength(2);
      // The charge counts for all months up to the one that the clock showed.
      expect((await world.state(limited))?.row.nextAtMs).toBe(monthStart(world.nowMs, 1));
    });

    test("a sweep begins all charges that are due", async () => {
      const ids = await Promise.all(Array.from({ length: 23 }, () => world.organization()));
      await world.sweep();
      for (const id of ids) expect(world.intents(id)).toMatchObject([{ status: "succeeded" }]);
    });

    test("a dispute after the terms were changed pauses the top-up", async () => {
      const id = await world.organization();
      await world.sweep();
      world.nowMs += HOUR_MS;
      await world.call(setTopUp, id, { ...TERMS, threshold: 60 });
      const intent = String(world.intents(id)[0]?.id);
      world.stripe.refund(intent, 600);
      await world.deliver(world.stripe.event("charge.refunded", intent));
      await world.sweep();
      expect(await world.shown(id)).toMatchObject({ status: "paused", reason: "refunded" });
    });

    test("a closed organization saves no card", async () => {
      const id = await world.organization();
      const { card } = await world.shown(id);
      const { id: sessionId } = await world.call(saveCard, id, { return_url: "https://ai.example.com/credits" });
      await world.change(id, "closed");
      await world.deliver(world.stripe.save(String(sessionId)));
      expect(await world.shown(id)).toMatchObject({ card });
    });
  });
});
