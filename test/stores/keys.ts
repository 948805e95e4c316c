import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { HoldTransition, IdempotencyClaim, SettleTransition } from "../../src/credits/books.ts";
import {
  factsOf,
  HOUR_MS,
  holdOf,
  NO_PROVIDER_RECORD,
  OWNER,
  one,
  randomId,
  referenceOf,
  releaseOf,
  type Subject,
  settleOf,
  tokensOf,
} from "./fixture.ts";

const DAY_MS = 86_400_000;

function claimOf(key: string, claim: Partial<IdempotencyClaim> = {}): IdempotencyClaim {
  return { callerId: "tok_first", key, fingerprint: "body", keepMs: DAY_MS, ...claim };
}

/** Another request with the same key. */
function keyedHold(organizationId: string, idempotency: IdempotencyClaim, amount = 10n): HoldTransition {
  return { ...holdOf(organizationId, amount), facts: factsOf(organizationId), idempotency };
}

/** A request of two days ago, whose key has expired. */
function oldHold(organizationId: string, key: string): HoldTransition {
  const facts = factsOf(organizationId, { holdId: v7({ msecs: Date.now() - 48 * HOUR_MS }) });
  return { ...keyedHold(organizationId, claimOf(key, { keepMs: -1 })), facts };
}

function answered(hold: HoldTransition, output: number, answer: string | null): SettleTransition {
  return { ...settleOf(hold, output), answer };
}

const claim = claimOf("key 'x' \" é 日本");

export function keyCases(subject: Subject): void {
  repetitionCases(subject);
  endCases(subject);
  oldKeyCases(subject);
  traceCase(subject);
}

function repetitionCases(subject: Subject): void {
  test("a key whose first request runs is in progress, and nothing is held", async () => {
    const organizationId = await subject.organization(100n);
    await subject.held(keyedHold(organizationId, claim));
    expect(await subject.one(keyedHold(organizationId, claim), "durable")).toEqual({ outcome: "in_progress" });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 90n, held: 10n });
    await subject.expectSound(organizationId);
  });

  test("a repeated hold with its key is the same hold", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(keyedHold(organizationId, claim));
    expect(await subject.one(hold)).toEqual({ outcome: "held", amount: 10n, available: 90n });
  });

  test("a key with an answer returns it, even without credits, and charges nothing", async () => {
    const organizationId = await subject.organization(10n);
    const answer = JSON.stringify({ text: "NUL \0, lone \ud800, 👩‍👧, '\"" });
    const hold = await subject.held(keyedHold(organizationId, claim));
    await subject.one(answered(hold, 10, answer));
    for (const amount of [10n, 1_000n]) {
      const again = await subject.one(keyedHold(organizationId, claim, amount), "durable");
      expect(again).toEqual({ outcome: "replayed", answer, charged: 10n, available: 0n });
    }
    // A second settlement does not replace the first answer.
    await subject.one(answered(hold, 1, '"another"'));
    expect(await subject.one(keyedHold(organizationId, claim))).toMatchObject({ outcome: "replayed", answer });
    expect(await subject.events(organizationId)).toHaveLength(1);
    await subject.expectSound(organizationId);
  });

  test("a key with another body is refused, whatever the outcome of the first", async () => {
    const organizationId = await subject.organization(100n);
    const other = claimOf(claim.key, { fingerprint: "other body" });
    const hold = await subject.held(keyedHold(organizationId, claim));
    expect(await subject.one(keyedHold(organizationId, other))).toEqual({ outcome: "mismatch" });
    await subject.one(answered(hold, 1, '"answer"'));
    expect(await subject.one(keyedHold(organizationId, other))).toEqual({ outcome: "mismatch" });
  });
}

function endCases(subject: Subject): void {
  test("a key is interrupted after a charge without an answer, and after an expiry", async () => {
    const organizationId = await subject.organization(100n);
    const left = await subject.held(keyedHold(organizationId, claimOf("left")));
    await subject.one(answered(left, 3, null));
    const lost = await subject.held({ ...keyedHold(organizationId, claimOf("lost")), lifeMs: -1_000 });
    await subject.one({ kind: "expire", ...referenceOf(lost) });
    for (const key of ["left", "lost"]) {
      expect(await subject.one(keyedHold(organizationId, claimOf(key)))).toEqual({ outcome: "interrupted" });
    }
    // The request was still running: a repetition receives the answer that was charged.
    await subject.one(answered(lost, 3, '"late"'));
    expect(await subject.one(keyedHold(organizationId, claimOf("lost")))).toMatchObject({ answer: '"late"' });
    await subject.expectSound(organizationId);
  });

  test("a release frees the key", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(keyedHold(organizationId, claim));
    const other = claimOf(claim.key, { fingerprint: "other body" });
    await subject.one(releaseOf(hold));
    await subject.held(keyedHold(organizationId, other));
    // A repeated release does not free the key of the new request.
    await subject.one(releaseOf(hold));
    expect(await subject.one(keyedHold(organizationId, other))).toEqual({ outcome: "in_progress" });
    await subject.expectSound(organizationId);
  });

  test("a hold that is refused leaves its key unused", async () => {
    const organizationId = await subject.organization(5n);
    expect(await subject.one(keyedHold(organizationId, claim))).toMatchObject({ outcome: "insufficient" });
    await subject.held(keyedHold(organizationId, claim, 5n));
  });
}

function oldKeyCases(subject: Subject): void {
  test("an expired key counts as absent and can be used again", async () => {
    const organizationId = await subject.organization(100n);
    const old = await subject.held(oldHold(organizationId, claim.key));
    const next = await subject.held(keyedHold(organizationId, claimOf(claim.key, { fingerprint: "other body" })));
    await subject.one(answered(old, 1, '"old"'));
    const again = keyedHold(organizationId, claimOf(claim.key, { fingerprint: "other body" }));
    expect(await subject.one(again)).toEqual({ outcome: "in_progress" });
    await subject.one(answered(next, 1, '"new"'));
    expect(await subject.one(again)).toMatchObject({ outcome: "replayed", answer: '"new"' });
    await subject.expectSound(organizationId);
  });

  test("a key belongs to its organization", async () => {
    const [a, b] = [await subject.organization(10n), await subject.organization(10n)];
    await subject.held(keyedHold(a, claim));
    await subject.held(keyedHold(b, claim));
  });

  test("only expired keys are removed, in chunks", async () => {
    const organizationId = await subject.organization(1_000n);
    const old = Array.from({ length: 7 }, (_, i) => oldHold(organizationId, `old ${i}`));
    await subject.books.apply("durable", [...old, keyedHold(organizationId, claimOf("young"))]);
    expect(await subject.books.removeOldKeys(5)).toBe(5);
    while ((await subject.books.removeOldKeys(5)) > 0);
    const outcome = await subject.one(keyedHold(organizationId, claimOf("young")));
    expect(outcome).toEqual({ outcome: "in_progress" });
    // Its key is removed; the hold ends normally.
    const [first] = old as [HoldTransition];
    expect(await subject.one(answered(first, 4, '"answer"'))).toMatchObject({ charged: 4n });
    await subject.expectSound(organizationId);
  });
}

function traceCase(subject: Subject): void {
  test("the trace of a request is stored at its end", async () => {
    const organizationId = await subject.organization(100n);
    const [charged, released] = [holdOf(organizationId, 10n), holdOf(organizationId, 10n)];
    await subject.books.apply("holds", [charged, released]);
    const attempts = [{ route: "a/b", outcome: "timeout", durationMs: 12 }];
    const record = { providerResponseId: "chatcmpl-7", providerCost: "0.00012" };
    const trace = { isStreamed: true, firstTokenMs: 7.4, attempts, failure: null, ...record };
    const failed = {
      isStreamed: false,
      firstTokenMs: null,
      attempts: null,
      failure: "upstream_error",
      ...NO_PROVIDER_RECORD,
    };
    await subject.one({ ...settleOf(charged, 1), trace });
    await subject.one({ ...releaseOf(released), trace: failed });
    expect(await subject.traces(organizationId)).toEqual(
      new Map([
        [
          charged.facts.holdId,
          { is_streamed: 1, first_token_ms: 7, attempts: JSON.stringify(attempts), failure: null },
        ],
        [released.facts.holdId, { is_streamed: 0, first_token_ms: null, attempts: null, failure: "upstream_error" }],
      ]),
    );
  });
}

/** Concurrent use of a key on two instances. */
export function keyRaceCases(subject: Subject, both: () => readonly [Subject["books"], Subject["books"]]): void {
  test("of two concurrent requests with the same key, one runs and is charged once", async () => {
    const organizationId = await subject.organization(10_000n);
    for (let round = 0; round < 20; round += 1) {
      const claim = claimOf(randomId("key"));
      const holds = Array.from({ length: 6 }, () => keyedHold(organizationId, claim));
      const outcomes = await Promise.all(holds.map((hold, i) => one(both()[i % 2 === 0 ? 0 : 1], hold, "durable")));
      expect(outcomes.map(({ outcome }) => outcome).sort()).toEqual(["held", ...Array<string>(5).fill("in_progress")]);
      const winner = holds[outcomes.findIndex(({ outcome }) => outcome === "held")] as HoldTransition;
      await Promise.all(both().map((books) => one(books, answered(winner, 3, '"answer"'), "durable")));
      const again = await one(both()[round % 2 === 0 ? 0 : 1], keyedHold(organizationId, claim), "durable");
      expect(again).toMatchObject({ outcome: "replayed", answer: '"answer"' });
    }
    expect(await subject.books.balance(organizationId)).toMatchObject({ held: 0n, spent: 60n });
    await subject.expectSound(organizationId);
  });

  test("concurrent checkpoints and expiries charge no more than the last checkpoint", async () => {
    const organizationId = await subject.organization(10_000n);
    const holds = Array.from({ length: 60 }, () => holdOf(organizationId, 20n, -1_000));
    await subject.books.apply("holds", holds);
    await Promise.all(
      holds.flatMap((hold, i) => {
        const [renewing, expiring] =
          i % 2 === 0 ? both() : ([...both()].reverse() as [Subject["books"], Subject["books"]]);
        const renewal = {
          kind: "renew" as const,
          facts: hold.facts,
          amount: 20n,
          tokens: tokensOf(5),
          lifeMs: -1_000,
          owner: OWNER,
        };
        return [one(renewing, renewal, "holds"), one(expiring, { kind: "expire", ...referenceOf(hold) }, "durable")];
      }),
    );
    const costs = (await subject.events(organizationId)).map(({ cost }) => cost);
    expect(costs).toHaveLength(60);
    expect(costs.every((cost) => cost === 0n || cost === 5n)).toBe(true);
    await subject.expectSound(organizationId);
  });
}
