import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { holdOf, Subject, settleOf } from "../../../test/stores/fixture.ts";
import type { Transition } from "../../credits/books.ts";
import type { Durability } from "../driver.ts";
import { storeOver } from "../store.ts";
import { BatchSender } from "./batch-sender.ts";
import type { RequestKind, RequestOf, ResultOf } from "./link.ts";
import { openSqliteDriver } from "./sqlite.ts";

/** Opens a store with an organization that has 100 micro-credits, and a sender to its thread; keeps what it sends. */
async function openSender() {
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-batches-"));
  const driver = await openSqliteDriver({ dataDir, role: "service" });
  const store = storeOver(driver);
  onTestFinished(async () => {
    await store.close();
    rmSync(dataDir, { recursive: true });
  });
  const subject = new Subject();
  subject.start({ store } as Parameters<Subject["start"]>[0]);
  const organizationId = await subject.organization(100n);
  /** The number of transitions in each batch of each message, and whether the batch is durable. */
  const sent: [number, boolean][][] = [];
  const writer = {
    request<Kind extends RequestKind>(request: RequestOf<Kind>): Promise<ResultOf<Kind>> {
      const { batches } = request as RequestOf<"apply">;
      sent.push(batches.map(({ transitions, isDurable }) => [transitions.length, isDurable]));
      return driver.writer.request(request);
    },
  };
  const sender = new BatchSender({ writer, clock: Date.now, onBooked: () => undefined });
  const apply = async (durability: Durability, ...transitions: Transition[]) => {
    const outcomes = await sender.apply(durability, transitions);
    return outcomes.map(({ outcome }) => outcome);
  };
  return { driver, subject, organizationId, sent, apply, sender };
}

test("batches that arrive while the thread works share the next message", async () => {
  const { sent, apply, organizationId, sender } = await openSender();
  const holds = [1n, 2n, 3n, 4n].map((amount) => holdOf(organizationId, amount));
  const [first, second, third, fourth] = holds as [Transition, Transition, Transition, Transition];
  await Promise.all([apply("holds", first), apply("holds", second, third), apply("durable", fourth)]);
  expect(sent).toEqual([
    [[1, false]],
    [
      [2, false],
      [1, true],
    ],
  ]);
  await sender.idle();
  expect(sender.waiting).toBe(0);
});

test("a batch reads what another one in its message has written", async () => {
  const { subject, apply, organizationId } = await openSender();
  const hold = holdOf(organizationId, 60n);
  const outcomes = await Promise.all([
    apply("holds", holdOf(organizationId, 10n)),
    apply("holds", hold),
    apply("durable", settleOf(hold, 60)),
    apply("holds", holdOf(organizationId, 41n)),
  ]);
  expect(outcomes).toEqual([["held"], ["held"], ["charged"], ["insufficient"]]);
  expect(await subject.books.balance(organizationId)).toMatchObject({ available: 30n, held: 10n, spent: 60n });
  await subject.expectSound(organizationId);
});

test("a batch with a defect is refused alone", async () => {
  const { subject, sent, apply, organizationId } = await openSender();
  const results = await Promise.allSettled([
    apply("holds", holdOf(organizationId, 1n)),
    apply("holds", holdOf(organizationId, 2n)),
    apply("durable", holdOf(organizationId, -1n)),
    apply("durable", holdOf(organizationId, 3n)),
  ]);
  expect(results.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected", "fulfilled"]);
  expect(sent.map((batches) => batches.length)).toEqual([1, 3, 1, 1, 1]);
  expect(await subject.books.balance(organizationId)).toMatchObject({ available: 94n, held: 6n });
  await subject.expectSound(organizationId);
});

test("the loss of the thread refuses all batches of a message, and the next one is booked", async () => {
  const { driver, sent, apply, organizationId } = await openSender();
  const first = apply("holds", holdOf(organizationId, 1n));
  const [second, third] = [apply("holds", holdOf(organizationId, 2n)), apply("durable", holdOf(organizationId, 3n))];
  const results = Promise.allSettled([second, third]);
  await first;
  // The second message is sent in the next turn, to a thread that ends.
  await driver.writer.kill();
  for (const result of await results) {
    expect(result).toMatchObject({ status: "rejected", reason: { name: "StoreUnavailableError", mayBeBooked: true } });
  }
  expect(sent).toHaveLength(2);
  expect(await apply("durable", holdOf(organizationId, 4n))).toEqual(["held"]);
});
