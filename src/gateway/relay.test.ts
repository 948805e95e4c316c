import { describe, expect, test } from "vitest";
import type { AnswerChunks, TakeChunks } from "../providers/provider.ts";
import { type Item, type Pieces, Resumed, relay } from "./relay.ts";

const word = (content: string): Pieces => [{ delta: { content } }];
const textOf = (pieces: Pieces) => pieces.map(({ delta }) => delta?.content).join("");

interface Source extends AnswerChunks {
  isClosed: boolean;
}

/** Yields words; `passes` adds the method that makes no promises. */
function sourceOf(words: string[], passes: boolean): Source {
  const left = [...words];
  const source: Source & AsyncIterator<Pieces> = {
    isClosed: false,
    [Symbol.asyncIterator]: () => source,
    next: async (): Promise<Item & IteratorResult<Pieces>> => {
      const next = left.shift();
      return next === undefined ? { done: true, value: undefined } : { done: false, value: word(next) };
    },
    return: async () => {
      source.isClosed = true;
      return { done: true, value: undefined };
    },
  };
  const passTo = async (take: TakeChunks) => {
    for (const one of left.splice(0)) await take(word(`${one}!`));
  };
  return passes ? Object.assign(source, { passTo }) : source;
}

async function relayed(chunks: AnswerChunks): Promise<string[]> {
  const texts: string[] = [];
  await relay(chunks, (pieces) => {
    texts.push(textOf(pieces));
    return undefined;
  });
  return texts;
}

describe("relay", () => {
  test("An answer without the method is iterated, one with it passes its chunks itself.", async () => {
    expect(await relayed(sourceOf(["a", "b"], false))).toEqual(["a", "b"]);
    expect(await relayed(sourceOf(["a", "b"], true))).toEqual(["a!", "b!"]);
  });

  test.each([true, false])(
    "A resumed answer passes its beginning, the pending read and the rest (%s).",
    async (passes) => {
      const source = sourceOf(["c", "d"], passes);
      const pending = source[Symbol.asyncIterator]().next();
      const texts = await relayed(new Resumed(source, [word("a"), word("b")], pending));
      expect(texts).toEqual(["a", "b", "c", passes ? "d!" : "d"]);
    },
  );

  test("A resumed answer whose pending read is its end is complete.", async () => {
    const pending = Promise.resolve<Item>({ done: true, value: undefined });
    expect(await relayed(new Resumed(sourceOf([], true), [word("a")], pending))).toEqual(["a"]);
  });

  test.each([true, false])("A resumed answer is closed when its beginning is not taken (%s).", async (passes) => {
    const source = sourceOf(["b"], passes);
    const refuse = () => {
      throw new Error("over");
    };
    await expect(relay(new Resumed(source, [word("a")], undefined), refuse)).rejects.toThrow("over");
    expect(source.isClosed).toBe(true);
  });

  test("The next chunks are passed on only when the promise of the earlier ones is fulfilled.", async () => {
    const gate = Promise.withResolvers<void>();
    const texts: string[] = [];
    const done = relay(new Resumed(sourceOf(["c"], false), [word("a"), word("b")], undefined), (pieces) => {
      texts.push(textOf(pieces));
      return texts.length === 1 ? gate.promise : undefined;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(texts).toEqual(["a"]);
    gate.resolve();
    await done;
    expect(texts).toEqual(["a", "b", "c"]);
  });
});
