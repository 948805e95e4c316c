import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { AuditRow } from "../../src/credits/audit.ts";
import { type EventRow, eventOf } from "../../src/credits/warnings.ts";
import type { DeliveryPage, DeliveryRow, ReceiverRow } from "../../src/stores/queries/events.ts";
import { budgetOf, factsOf, holdOf, randomId, type Subject, settleOf } from "./fixture.ts";

const EVERYTHING: DeliveryPage = { organizationId: null, receiverId: null, state: null, before: null, limit: 50 };

function receiverOf(organizationId: string | null, changes: Partial<ReceiverRow> = {}): ReceiverRow {
  return {
    ...{ id: randomId("rcv"), organizationId, name: "Ops", format: "webhook", target: "https://hooks.example.com/a" },
    ...{ kinds: ["credits.low"], secrets: [{ secret: "whsec_AAAA", endsAtMs: null }], createdAtMs: 1 },
    ...{ failingSinceMs: null, disabledAtMs: null, ...changes },
  };
}

function deliveryFor(receiver: ReceiverRow, event: EventRow, changes: Partial<DeliveryRow> = {}): DeliveryRow {
  return {
    ...{ id: randomId("dlv"), receiverId: receiver.id, eventKey: event.key, state: "waiting", attempts: 0 },
    ...{ nextAtMs: 1_000, createdAtMs: 1_000, attemptedAtMs: null, result: null, ...changes },
  };
}

function recordOf(subjectId: string): AuditRow {
  const who = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
  return { id: v7(), madeAtMs: 1, ...who, action: "test", organizationId: null, subjectId, before: null, after: null };
}

/** Writes a receiver and events of it that are on their way. */
async function delivering(subject: Subject, count = 1) {
  const { events } = subject.store;
  const organizationId = await subject.organization();
  const receiver = receiverOf(organizationId);
  await events.insertReceiver(receiver, recordOf(receiver.id));
  const rows = Array.from({ length: count }, (_, index) =>
    eventOf("credits.low", { organizationId, nowMs: 1_000 + index, period: [v7()] }, { credits_left: 1 }),
  );
  await events.insertEvents(rows);
  const deliveries = rows.map((event, index) => deliveryFor(receiver, event, { createdAtMs: 1_000 + index }));
  await events.routeEvents(
    rows.map(({ key }) => key),
    deliveries,
  );
  return { organizationId, receiver, rows, deliveries };
}

export function eventCases(subject: Subject): void {
  outboxCases(subject);
  deliveryCases(subject);
  receiverCases(subject);
  modelUserCases(subject);
}

function modelUserCases(subject: Subject): void {
  test("those who used a model since a day are found, each once, and the sums over all organizations are not", async () => {
    const { events, usage } = subject.store;
    const DAY_MS = 86_400_000;
    const day = Math.floor(1_900_000_000_000 / DAY_MS) * DAY_MS;
    const [a, b] = [await subject.organization(), await subject.organization()];
    const [model, other] = [v7(), v7()];
    const counts = { requests: 1, errors: 0, inputTokens: 1, outputTokens: 1, providerCost: 0n, chargedWithCost: 0n };
    const row = (organizationId: string, name: string, atMs: number, dimension: "model" | "token" = "model") => {
      return { organizationId, dimension, name, day: atMs, charged: 1n, ...counts };
    };
    await usage.finishDay(day, [row(a, model, day), row("*", model, day), row(b, other, day)], day, []);
    const next = day + DAY_MS;
    await usage.finishDay(next, [row(a, model, next), row(b, model, next, "token")], next, []);
    expect(await events.modelUsers([model], day)).toEqual([{ organizationId: a, model, priceList: null }]);
    expect(await events.modelUsers([model, other], next)).toEqual([{ organizationId: a, model, priceList: null }]);
    expect(await events.modelUsers([other, v7()], day)).toEqual([{ organizationId: b, model: other, priceList: null }]);
  });
}

function outboxCases(subject: Subject): void {
  const ownEvents = async (organizationId: string) => {
    const rows = await subject.store.events.unroutedEvents(10_000);
    return rows.filter((row) => row.organizationId === organizationId).map(({ kind, data }) => [kind, data.percent]);
  };

  test("a charge that reaches thresholds writes its warnings, and the next charge writes none", async () => {
    const organizationId = await subject.organization(100n);
    await subject.budget(organizationId, budgetOf(organizationId, { amount: 60n }));
    for (const output of [55, 1]) {
      const hold = holdOf(organizationId, BigInt(output));
      await subject.one(hold);
      await subject.one(settleOf(hold, output));
    }
    expect((await ownEvents(organizationId)).toSorted()).toEqual([
      ["budget.used", 80],
      ["credits.low", 50],
    ]);
    expect(await subject.books.balance(organizationId)).toMatchObject({ topUp: 100n, announced: 50n });
    const uses = await subject.read(
      `select warned_limit, warned_percent from budget_use where organization_id = '${organizationId}'`,
    );
    expect(uses.map((use) => Object.values(use).map(Number))).toEqual([[60, 80]]);
    await subject.expectSound(organizationId);
  });

  test("concurrent charges of one organization write each warning once", async () => {
    const organizationId = await subject.organization(100n);
    const holds = Array.from({ length: 20 }, () => holdOf(organizationId, 4n));
    for (const hold of holds) await subject.one(hold);
    await Promise.all(holds.map((hold) => subject.one(settleOf(hold, 4))));
    expect((await ownEvents(organizationId)).map(([, percent]) => Number(percent)).toSorted()).toEqual([20, 50]);
  });

  test("an event of the same key is written once, by a charge too", async () => {
    const organizationId = await subject.organization();
    const settlement = () => settleOf({ facts: factsOf(organizationId) }, 3);
    for (const _ of [1, 2]) await subject.one(settlement());
    expect(await ownEvents(organizationId)).toEqual([["credits.shortfall", undefined]]);
    const event = eventOf("credits.low", { organizationId, nowMs: 5, period: ["a"] }, {});
    await Promise.all([1, 2].map(() => subject.store.events.insertEvents([event])));
    expect(await ownEvents(organizationId)).toHaveLength(2);
  });

  test("the thresholds of an organization are changed with an audit record, and warn", async () => {
    const organizationId = await subject.organization(1_000n);
    const { accounts } = subject.store;
    expect(await accounts.changeCreditWarnings(organizationId, [900n], recordOf(organizationId))).toBe(true);
    expect(await accounts.changeCreditWarnings("org_none", [900n], recordOf(organizationId))).toBe(false);
    await subject.one(settleOf({ facts: factsOf(organizationId) }, 100));
    expect(await ownEvents(organizationId)).toEqual([["credits.low", null]]);
  });

  test("events are written in any number at once", async () => {
    const organizationId = randomId("org");
    const terms = (number: number) => ({ organizationId, nowMs: 0, period: [number] });
    const rows = Array.from({ length: 11_000 }, (_, number) => eventOf("credits.forecast", terms(number), {}));
    await subject.store.events.insertEvents(rows);
    expect(await subject.store.events.removeOldEvents(1, rows.length)).toBe(rows.length);
  });

  test("old events are removed with their deliveries", async () => {
    const { events } = subject.store;
    const { receiver } = await delivering(subject, 3);
    while ((await events.removeOldEvents(1_002, 1)) > 0);
    const found = await events.deliveries({ ...EVERYTHING, receiverId: receiver.id });
    expect(found.map(({ event }) => event.madeAtMs)).toEqual([1_002]);
  });
}

function deliveryCases(subject: Subject): void {
  test("a due delivery is claimed by one of several nodes, and is due again after the claim", async () => {
    const { events } = subject.store;
    const { receiver, rows } = await delivering(subject);
    expect(await events.dueDeliveries(receiver.id, 999, 10)).toEqual([]);
    const due = await events.dueDeliveries(receiver.id, 1_000, 10);
    expect(due).toMatchObject([{ event: { ...rows[0], isRouted: true }, delivery: { attempts: 0 } }]);
    const claims = await Promise.all([1, 2, 3].map(() => events.claimDeliveries(due, 5_000)));
    expect(claims.map((claim) => claim.length).toSorted()).toEqual([0, 0, 1]);
    expect(await events.dueDeliveries(receiver.id, 4_999, 10)).toEqual([]);
    expect(await events.dueDeliveries(receiver.id, 5_000, 10)).toMatchObject([{ delivery: { attempts: 1 } }]);
    expect((await events.dueReceivers(5_000)).map(({ id }) => id)).toContain(receiver.id);
  });

  test("the result of an attempt is written, and since when a receiver fails", async () => {
    const { events } = subject.store;
    const { receiver, deliveries } = await delivering(subject, 2);
    const [first, second] = deliveries.map(({ id }) => id) as [string, string];
    const attempt = { receiverId: receiver.id, isDelivered: false, result: "HTTP 500" };
    await events.recordAttempt([first], { ...attempt, atMs: 2_000, nextAtMs: 7_000 });
    await events.recordAttempt([second], { ...attempt, atMs: 3_000, nextAtMs: null });
    expect((await events.delivery(first))?.delivery).toMatchObject({
      state: "waiting",
      nextAtMs: 7_000,
      result: "HTTP 500",
    });
    expect((await events.delivery(second))?.delivery).toMatchObject({ state: "failed", attemptedAtMs: 3_000 });
    expect(await events.receiver(receiver.id)).toEqual({ ...receiver, failingSinceMs: 2_000 });
    const success = { ...attempt, isDelivered: true, result: "HTTP 200", atMs: 8_000, nextAtMs: null };
    await events.recordAttempt([first], success);
    expect((await events.delivery(first))?.delivery).toMatchObject({ state: "delivered", result: "HTTP 200" });
    expect(await events.receiver(receiver.id)).toEqual(receiver);
    expect(await events.replayDelivery(second, 9_000, recordOf(second))).toBe(true);
    expect((await events.delivery(second))?.delivery).toMatchObject({ state: "waiting", attempts: 0, nextAtMs: 9_000 });
    expect(await events.replayDelivery("dlv_none", 9_000, recordOf(second))).toBe(false);
  });

  test("deliveries come newest first, in pages, by organization, receiver and state", async () => {
    const { events } = subject.store;
    const { organizationId, receiver, deliveries } = await delivering(subject, 3);
    const ids = async (page: Partial<DeliveryPage>) =>
      (await events.deliveries({ ...EVERYTHING, organizationId, ...page })).map(({ delivery }) => delivery.id);
    const newest = deliveries.map(({ id }) => id).toReversed();
    expect(await ids({})).toEqual(newest);
    expect(await ids({ limit: 1 })).toEqual(newest.slice(0, 1));
    expect(await ids({ before: { createdAtMs: 1_002, id: newest[0] ?? "" } })).toEqual(newest.slice(1));
    expect(await ids({ receiverId: "rcv_none" })).toEqual([]);
    expect(await ids({ organizationId: await subject.organization(), receiverId: receiver.id })).toEqual([]);
    expect(await ids({ state: "failed" })).toEqual([]);
    const { waiting, oldestAtMs } = await events.deliveryState();
    expect([waiting >= 3, oldestAtMs !== null && oldestAtMs <= 1_000]).toEqual([true, true]);
  });
}

function receiverCases(subject: Subject): void {
  test("receivers are due in the order of their oldest waiting deliveries, and those that fail come last", async () => {
    const { events } = subject.store;
    const [failing, late, early] = [await delivering(subject), await delivering(subject, 2), await delivering(subject)];
    const attempt = { receiverId: failing.receiver.id, isDelivered: false, result: "HTTP 500" };
    await events.recordAttempt([failing.deliveries[0]?.id ?? ""], { ...attempt, atMs: 1, nextAtMs: 100 });
    const postponed = late.deliveries.map(({ id }) => id);
    for (const [index, id] of postponed.entries()) await events.replayDelivery(id, 500 - index, recordOf(id));
    await events.replayDelivery(early.deliveries[0]?.id ?? "", 498, recordOf(early.receiver.id));
    const own = [failing, late, early].map(({ receiver }) => receiver.id);
    const due = (await events.dueReceivers(500)).map(({ id }) => id).filter((id) => own.includes(id));
    expect(due).toEqual([early.receiver.id, late.receiver.id, failing.receiver.id]);
  });

  test("receivers that are created at the same time stay within their maximum number", async () => {
    const { events } = subject.store;
    const shared = (await events.receivers(null)).filter((row) => row.organizationId === null).length;
    for (const [organizationId, max] of [[await subject.organization(), 3] as const, [null, shared + 3] as const]) {
      const rows = Array.from({ length: 8 }, () => receiverOf(organizationId));
      const written = await Promise.all(rows.map((row) => events.insertReceiver(row, recordOf(row.id), max)));
      expect(written.toSorted()).toEqual([...Array(5).fill(false), ...Array(3).fill(true)]);
      const own = (await events.receivers(organizationId)).filter((row) => row.organizationId === organizationId);
      expect(own).toHaveLength(max);
    }
  });

  test("a receiver is changed only as it was read, and deleted with its deliveries", async () => {
    const { events } = subject.store;
    const { organizationId, receiver, deliveries } = await delivering(subject);
    const record = recordOf(receiver.id);
    expect(await events.changeReceiver({ ...receiver, name: "Old" }, { name: "New" }, record)).toBe(false);
    expect(await events.changeReceiver(receiver, { name: "New", kinds: null }, record)).toBe(true);
    expect(await events.receivers(organizationId)).toEqual([{ ...receiver, name: "New", kinds: null }]);
    expect(await events.deleteReceiver(receiver.id, recordOf(receiver.id))).toBe(true);
    expect(await events.deleteReceiver(receiver.id, recordOf(receiver.id))).toBe(false);
    expect(await events.delivery(deliveries[0]?.id ?? "")).toBeUndefined();
  });

  test("a receiver that is disabled by hand fails what waits for it, and another change does not", async () => {
    const { events } = subject.store;
    const { receiver, deliveries } = await delivering(subject);
    const state = async () => (await events.delivery(deliveries[0]?.id ?? ""))?.delivery.state;
    expect(await events.changeReceiver(receiver, { disabledAtMs: null }, recordOf(receiver.id))).toBe(true);
    expect(await state()).toBe("waiting");
    expect(await events.changeReceiver(receiver, { disabledAtMs: 5 }, recordOf(receiver.id))).toBe(true);
    expect(await state()).toBe("failed");
  });

  test("a receiver is disabled once, with an event, and what waits for it has failed", async () => {
    const { events } = subject.store;
    const { organizationId, receiver, deliveries } = await delivering(subject);
    const event = eventOf("receiver.disabled", { organizationId, nowMs: 5, period: [receiver.id] }, {});
    const disabled = await Promise.all([1, 2].map(() => events.disableReceiver(receiver.id, 9_000, event)));
    expect(disabled.toSorted()).toEqual([false, true]);
    expect((await events.delivery(deliveries[0]?.id ?? ""))?.delivery.state).toBe("failed");
    expect((await events.dueReceivers(99_000)).map(({ id }) => id)).not.toContain(receiver.id);
  });
}
