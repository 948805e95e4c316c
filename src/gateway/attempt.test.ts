import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { UpstreamError } from "../errors.ts";
import { FairTurns } from "../ledger/fair-queue.ts";
import type { UpstreamChunk } from "../providers/provider.ts";
import type { Admission } from "./admit.ts";
import { attempt, awaitBeginning } from "./attempt.ts";
import { Circuits } from "./circuit.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import type { Plan } from "./plan.ts";
import { RetryBudget } from "./retry-budget.ts";

const ROLE: UpstreamChunk[] = [{ delta: { role: "assistant", content: "" } }];
const word = (content: string): UpstreamChunk[] => [{ delta: { content } }];
const BROKEN = new UpstreamError("failed", "broken");

interface Source {
  chunks: AsyncGenerator<readonly UpstreamChunk[]>;
  taken: number;
  isEnded: boolean;
}

/** Yields the items one by one: throws an error, awaits a promise. */
function sourceOf(items: (UpstreamChunk[] | Error | Promise<UpstreamChunk[]>)[]): Source {
  const source: Source = { chunks: run(), taken: 0, isEnded: false };
  async function* run() {
    try {
      for (const item of items) {
        source.taken += 1;
        if (item instanceof Error) throw item;
        yield await item;
      }
    } finally {
      source.isEnded = true;
    }
  }
  return source;
}

async function begun(source: Source, isStreamed: boolean) {
  const { answer } = await awaitBeginning(source, { isStreamed, signal: new AbortController().signal });
  if (answer === null) throw new Error("The answer did not begin");
  return answer;
}
const failureOf = (items: Parameters<typeof sourceOf>[0], isStreamed: boolean, signal = new AbortController().signal) =>
  awaitBeginning(sourceOf(items), { isStreamed, signal });
const read = async (chunks: AsyncIterable<readonly UpstreamChunk[]>) => {
  const all: (readonly UpstreamChunk[])[] = [];
  for await (const item of chunks) all.push(item);
  return all;
};

describe("a streamed answer", () => {
  test("A streamed answer is read up to its first text, and then as it arrives.", async () => {
    const items = [ROLE, word("a"), word("b")];
    const source = sourceOf(items);
    const { chunks } = await begun(source, true);
    expect(source.taken).toBe(2);
    expect(await read(chunks)).toEqual(items);
  });

  test.each([[[BROKEN]], [[ROLE, BROKEN]]])(
    "A stream that fails before its first text has not begun.",
    async (items) => {
      expect(await failureOf(items, true)).toEqual({ answer: null, failure: BROKEN, received: [] });
    },
  );

  test("A failure after the first text rejects the next read.", async () => {
    const { chunks } = await begun(sourceOf([word("a"), BROKEN]), true);
    await expect(read(chunks)).rejects.toBe(BROKEN);
  });

  test.each([
    { reasoning_content: "hm" },
    { refusal: "no" },
    { tool_calls: [{ index: 0, function: { arguments: "" } }] },
  ])("Reasoning, a refusal or a tool call begin an answer as well.", async (delta) => {
    const source = sourceOf([[{ delta }], word("b")]);
    await begun(source, true);
    expect(source.taken).toBe(1);
  });

  test("At most 100 items without text are buffered.", async () => {
    const source = sourceOf(Array.from({ length: 500 }, () => ROLE));
    const { chunks } = await begun(source, true);
    expect(source.taken).toBe(100);
    expect(await read(chunks)).toHaveLength(500);
  });

  test("The source ends when the reader ends early.", async () => {
    const source = sourceOf([word("a"), word("b")]);
    const { chunks } = await begun(source, true);
    for await (const _item of chunks) break;
    expect(source.isEnded).toBe(true);
  });

  describe("without text", () => {
    beforeEach(() => {
      vi.useFakeTimers();
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    test("A silent stream begins after ten seconds and loses no item.", async () => {
      const late = Promise.withResolvers<UpstreamChunk[]>();
      const waiting = begun(sourceOf([ROLE, late.promise]), true);
      await vi.advanceTimersByTimeAsync(10_000);
      const { chunks } = await waiting;
      late.resolve(word("late"));
      expect(await read(chunks)).toEqual([ROLE, word("late")]);
    });

    test("A silent stream that has begun rejects when its source fails.", async () => {
      const late = Promise.withResolvers<UpstreamChunk[]>();
      const waiting = begun(sourceOf([late.promise]), true);
      await vi.advanceTimersByTimeAsync(10_000);
      const { chunks } = await waiting;
      late.reject(BROKEN);
      await expect(read(chunks)).rejects.toBe(BROKEN);
    });
  });
});

describe("an unstreamed answer", () => {
  test("An unstreamed answer is read to its end.", async () => {
    const items = [ROLE, word("a"), word("b")];
    const source = sourceOf(items);
    const { chunks } = await begun(source, false);
    expect(source.isEnded).toBe(true);
    expect(await read(chunks)).toEqual(items);
  });

  test("An unstreamed answer that fails has received nothing.", async () => {
    expect(await failureOf([word("a"), BROKEN], false)).toEqual({ answer: null, failure: BROKEN, received: [] });
  });

  test("The received pieces are returned where the client has disconnected.", async () => {
    const left = new Error("disconnected");
    const result = await failureOf([word("a"), word("b"), left], false, AbortSignal.abort(left));
    expect(result).toEqual({ answer: null, failure: left, received: [...word("a"), ...word("b")] });
  });
});

describe("the body for an upstream", () => {
  /** Begins a request of an organization while another one has its turn of the event loop. */
  function begin(isLarge: boolean) {
    const longTasks = new FairTurns(1);
    const other = Promise.withResolvers<void>();
    void longTasks.run("org_other", () => other.promise);
    const route = { providerId: "up", model: "m" };
    const gateway = {
      ...{ longTasks, circuits: new Circuits(), retryBudget: new RetryBudget(), providers: new Map([["up", {}]]) },
      ...{ clock: () => 0, random: () => 0, log: { error: () => undefined } },
    } as unknown as Gateway;
    const send = vi.fn(async () => sourceOf([word("a")]));
    const plan = { model: { id: "m" }, send } as unknown as Plan;
    const client = new AbortController();
    const call = { principal: { organizationId: "org_1" }, isLarge, signal: client.signal } as unknown as GatewayCall;
    const ended = attempt(gateway, call, plan, { routes: [route] } as unknown as Admission);
    return { ended, send, client, other };
  }

  test("The body of a large request is made in the turn of its organization.", async () => {
    const { ended, send, other } = begin(true);
    await new Promise((resolve) => setImmediate(resolve));
    expect(send).not.toHaveBeenCalled();
    other.resolve();
    expect(await ended).toMatchObject({ made: [{ outcome: "answered" }] });
  });

  test("A small request does not wait for the turns of large ones.", async () => {
    expect(await begin(false).ended).toMatchObject({ made: [{ outcome: "answered" }] });
  });

  test("A large request whose client disconnects before its turn is not sent.", async () => {
    const { ended, send, client, other } = begin(true);
    client.abort(new Error("The client disconnected"));
    other.resolve();
    expect(await ended).toMatchObject({ answer: null, made: [], failure: { message: "The client disconnected" } });
    expect(send).not.toHaveBeenCalled();
  });
});
