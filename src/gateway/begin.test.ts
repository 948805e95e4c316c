import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { UpstreamError } from "../errors.ts";
import type { UpstreamChunk } from "../providers/provider.ts";
import { begun } from "./begin.ts";
import { Meter } from "./meter.ts";

const ROLE: UpstreamChunk[] = [{ delta: { role: "assistant", content: "" } }];
const word = (content: string): UpstreamChunk[] => [{ delta: { content } }];
const BROKEN = new UpstreamError("failed", "broken");

interface Source {
  chunks: AsyncGenerator<readonly UpstreamChunk[]>;
  taken: number;
  isEnded: boolean;
}

/** Gives the items one by one; `Error` breaks off, a promise is waited for. */
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

const options = (isStreamed: boolean, signal = new AbortController().signal) => ({
  isStreamed,
  signal,
  meter: new Meter(4_096),
});
const read = async (chunks: AsyncIterable<readonly UpstreamChunk[]>) => {
  const all: (readonly UpstreamChunk[])[] = [];
  for await (const item of chunks) all.push(item);
  return all;
};

describe("streamed", () => {
  test("is taken up to its first words, and then read on as it comes", async () => {
    const items = [ROLE, word("a"), word("b")];
    const source = sourceOf(items);
    const { chunks } = await begun(source, options(true));
    expect(source.taken).toBe(2);
    expect(await read(chunks)).toEqual(items);
  });

  test.each([[[BROKEN]], [[ROLE, BROKEN]]])("rejects when it breaks before them", async (items) => {
    const asked = options(true);
    await expect(begun(sourceOf(items), asked)).rejects.toBe(BROKEN);
    expect(asked.meter.output.roughTokens).toBe(0);
  });

  test("breaks after them as before", async () => {
    const { chunks } = await begun(sourceOf([word("a"), BROKEN]), options(true));
    await expect(read(chunks)).rejects.toBe(BROKEN);
  });

  test.each([
    { reasoning_content: "hm" },
    { refusal: "no" },
    { tool_calls: [{ index: 0, function: { arguments: "" } }] },
  ])("reasoning, a refusal or a tool call are words as well", async (delta) => {
    const source = sourceOf([[{ delta }], word("b")]);
    await begun(source, options(true));
    expect(source.taken).toBe(1);
  });

  test("is not kept back for ever by pieces that say nothing", async () => {
    const source = sourceOf(Array.from({ length: 500 }, () => ROLE));
    const { chunks } = await begun(source, options(true));
    expect(source.taken).toBe(100);
    expect(await read(chunks)).toHaveLength(500);
  });

  test("ends its source where the reader ends early", async () => {
    const source = sourceOf([word("a"), word("b")]);
    const { chunks } = await begun(source, options(true));
    for await (const _item of chunks) break;
    expect(source.isEnded).toBe(true);
  });

  describe("and silent", () => {
    beforeEach(() => {
      vi.useFakeTimers();
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    test("is given on after ten seconds, and loses nothing", async () => {
      const late = Promise.withResolvers<UpstreamChunk[]>();
      const waiting = begun(sourceOf([ROLE, late.promise]), options(true));
      await vi.advanceTimersByTimeAsync(10_000);
      const { chunks } = await waiting;
      late.resolve(word("late"));
      expect(await read(chunks)).toEqual([ROLE, word("late")]);
    });

    test("is given on, and fails where it fails then", async () => {
      const late = Promise.withResolvers<UpstreamChunk[]>();
      const waiting = begun(sourceOf([late.promise]), options(true));
      await vi.advanceTimersByTimeAsync(10_000);
      const { chunks } = await waiting;
      late.reject(BROKEN);
      await expect(read(chunks)).rejects.toBe(BROKEN);
    });
  });
});

describe("unstreamed", () => {
  test("is taken to its end", async () => {
    const items = [ROLE, word("a"), word("b")];
    const source = sourceOf(items);
    const { chunks } = await begun(source, options(false));
    expect(source.isEnded).toBe(true);
    expect(await read(chunks)).toEqual(items);
  });

  test("rejects when it breaks in its middle, and what came is not counted", async () => {
    const asked = options(false);
    await expect(begun(sourceOf([word("a"), BROKEN]), asked)).rejects.toBe(BROKEN);
    expect(asked.meter.output.roughTokens).toBe(0);
  });

  test("what had come is counted for a client that left meanwhile", async () => {
    const left = new Error("left");
    const asked = options(false, AbortSignal.abort(left));
    await expect(begun(sourceOf([word("a"), word("b"), left]), asked)).rejects.toBe(left);
    expect(asked.meter.output.roughTokens).toBe(2);
  });
});
