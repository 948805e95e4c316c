import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { endTopUp, setTopUp } from "../../src/operations/top-ups.ts";
import { holdOf, releaseOf, settleOf } from "../stores/fixture.ts";
import { countOf, seedOfRun, timeoutOf } from "../support/counts.ts";
import { STORES } from "../support/opened-stores.ts";
import {
  CREDIT,
  DAY_MS,
  type Fault,
  HOUR_MS,
  type NodeOptions,
  SECOND_MS,
  TERMS,
  TopUpWorld,
} from "../support/top-ups.ts";

const RUNS = countOf("topUps");
const KINDS = STORES.map((store) => ({ ...store, runs: store.kind === "SQLite" ? RUNS : Math.ceil(RUNS / 10) }));

describe.each(KINDS)("automatic top-ups on $kind", ({ open, runs, skip }) => {
  describe.skipIf(skip)("with a stand-in for Stripe", () => {
    let world: TopUpWorld;
    beforeAll(async () => {
      world = await TopUpWorld.open(open);
    }, 180_000);
    afterAll(() => world.close());

    test(`${runs} random orders of sweeps, crashes, spending and changes charge each intent once`, {
      timeout: timeoutOf("topUps", 1_200_000),
    }, async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(STEP, { minLength: 4, maxLength: 20 }), async (steps) => {
          await world.reset(200);
          const id = await world.organization();
          // No two charges of an organization are under way at once.
          world.stripe.onConfirm = async () => expect(world.intents(id, "processing")).toEqual([]);
          let granted = 0n;
          for (const step of steps) {
            granted += await play(world, id, step);
            world.expectCharges(id);
          }
          await end(world, id);
          // Everything that was charged is booked once, and nothing else.
          expect(await world.state(id)).toMatchObject({ pending: undefined });
          const charged = world.intents(id, "succeeded");
          const booked = await world.payments(id);
          expect(booked.map((payment) => payment.id).sort()).toEqual(charged.map((intent) => intent.id).sort());
          world.expectCharges(id);
          const kept = charged.map(({ refunded }) => 100n * CREDIT - (100n * CREDIT * BigInt(refunded)) / 1_000n);
          const paid = kept.reduce((sum, credits) => sum + credits, granted);
          const { available = 0n, held = 0n, spent = 0n } = (await world.balance(id)) ?? {};
          expect(available + held + spent).toBe(paid + (await world.opened.store.payments.debt(id)));
          await world.expectSound(id);
        }),
        { numRuns: runs, seed: seedOfRun() },
      );
    });
  });
});

const CARDS = ["charged", "processing", "card_declined", "authentication_required"] as const;
const WAITS_MS = [31 * SECOND_MS, HOUR_MS, 2 * DAY_MS, 12 * DAY_MS];
const ACTS = ["sweep", "sweep", "sweep", "both", "both", "wait", "wait", "wait", "spend", "spend", "spend"] as const;
const RARE = ["card", "saveCard", "set", "end", "status", "grant", "settle", "deliver", "refund"] as const;
const STEP = fc.record({
  act: fc.constantFrom(...ACTS, ...RARE),
  of: fc.nat(19),
  faults: fc.array(fc.constantFrom<Fault>("none", "none", "none", "none", "before", "after"), { maxLength: 8 }),
});
type Step = typeof STEP extends fc.Arbitrary<infer One> ? One : never;

/** Plays a step; returns the credits that it grants by hand. */
async function play(world: TopUpWorld, id: string, { act, of, faults }: Step): Promise<bigint> {
  const { stripe } = world;
  const nodes: NodeOptions[] = [{ faults: [...faults] }, { faults: faults.toReversed(), store: world.opened.other }];
  if (act === "sweep") await world.sweep(nodes[of % 2]);
  if (act === "both") await Promise.all(nodes.map(world.sweep));
  if (act === "wait") world.nowMs += WAITS_MS[of % 4] ?? 0;
  if (act === "card") stripe.card = CARDS[of % 4] ?? "charged";
  if (act === "saveCard") await world.saveCard(id);
  if (act === "set") await world.call(setTopUp, id, { ...TERMS, threshold: 50 + of });
  if (act === "end") await world.call(endTopUp, id);
  if (act === "status") await world.change(id, of % 2 === 0 ? "paused" : "active");
  if (act === "spend") {
    const hold = holdOf(id, 60n * CREDIT);
    const [held] = await world.opened.store.books.apply("holds", [hold]);
    if (held.outcome === "held") await world.book(of % 2 === 0 ? releaseOf(hold) : settleOf(hold, 60_000_000));
  }
  const settled = of % 2 === 0 ? "succeeded" : "requires_payment_method";
  if (act === "settle") for (const intent of world.intents(id, "processing")) stripe.settle(intent.id, settled);
  const paid = world.intents(id, "succeeded");
  const intent = paid[of % Math.max(1, paid.length)]?.id;
  if (intent !== undefined && act === "deliver") await world.deliver(stripe.event("payment_intent.succeeded", intent));
  if (intent !== undefined && act === "refund") {
    stripe.refund(intent, of * 50);
    await world.deliver(stripe.event("charge.refunded", intent));
  }
  if (act !== "grant") return 0n;
  await world.grant(id, BigInt(of) * CREDIT);
  return BigInt(of) * CREDIT;
}

/** Switches the top-up off, and lets everything that has begun end. */
async function end(world: TopUpWorld, id: string): Promise<void> {
  world.stripe.card = "charged";
  await world.change(id, "active");
  await world.call(endTopUp, id);
  for (const intent of world.intents(id, "processing")) world.stripe.settle(intent.id, "succeeded");
  world.nowMs += DAY_MS;
  await world.sweep();
}
