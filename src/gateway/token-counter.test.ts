import fc from "fast-check";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { afterEach, describe, expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { sampleOf, TokenCounter, type TokenCounterOptions } from "./token-counter.ts";

let counter: TokenCounter;
afterEach(() => counter?.stop());

function make(options: Partial<TokenCounterOptions> = {}): TokenCounter {
  counter = new TokenCounter({ log: keepLog(), previewDeadlineMs: 600_000, pieceTimeoutMs: 600_000, ...options });
  return counter;
}

/** Counts for the charges of an organization. */
function counting(options: Partial<TokenCounterOptions> = {}) {
  return make(options).forCharges("org_a");
}

const NEVER = new AbortController().signal;
const exact = (text: string) => countTokens(text, { disallowedSpecial: new Set<string>() });
/** Different Chinese characters: a text that takes long. */
const dense = (characters: number, first = 0) =>
  Array.from({ length: characters }, (_, i) =>
    String.fromCharCode(0x4e00 + (((first + i) * 7_919 + Math.floor((first + i) / 20_900)) % 20_900)),
  ).join("");

test("Each group of texts is counted with the vocabulary, in a thread that starts with the first count.", async () => {
  const tokenCounter = make();
  expect(tokenCounter.isRunning).toBe(false);
  const text = "The quick brown fox jumps over the lazy dog. <|endoftext|> 漢字 👩‍👩‍👧‍👦\n";
  const charges = tokenCounter.forCharges("org_a");
  expect(await charges.count([[], [""]])).toEqual([0, 0]);
  expect(tokenCounter.isRunning).toBe(false);
  expect(await charges.count([[text], [], ["", "a", "b"]])).toEqual([exact(text), 0, 2]);
  expect(tokenCounter.isRunning).toBe(true);
});

test("The count of a short text is exact.", async () => {
  const charges = counting();
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: "binary", maxLength: 250 }), async (text) => {
      expect(await charges.count([[text]])).toEqual([exact(text)]);
    }),
    { numRuns: 200 },
  );
});

test("The count of long prose is nearly exact.", async () => {
  const text = "It was the best of times, it was the worst of times. ".repeat(4_000);
  const [count = 0] = (await counting().count([[text]])) ?? [];
  expect(Math.abs(count - exact(text)) / exact(text)).toBeLessThan(0.01);
});

test.each([
  ["one letter", "a"],
  ["spaces", " "],
  ["line ends", "\n"],
  ["marks", "!?"],
  ["joined emoji", "👩‍👩‍👧‍👦"],
])("A megabyte of %s is counted.", async (_name, unit) => {
  const text = unit.repeat(Math.ceil((1024 * 1024) / unit.length));
  const [count = 0] = (await counting().count([[text]])) ?? [];
  expect(count).toBeGreaterThan(0);
  expect(count).toBeLessThanOrEqual(Buffer.byteLength(text));
});

describe("several organizations", () => {
  /** Texts that take several pieces each. */
  const LONG = dense(40_000);
  const WORDS = "a few words";

  /** Returns the names of counts in the order in which they end. */
  async function orderOf(counts: Record<string, Promise<unknown>>): Promise<string[]> {
    const ended: string[] = [];
    await Promise.all(Object.entries(counts).map(([name, count]) => count.then(() => ended.push(name))));
    return ended;
  }

  test("A charge comes before the previews of its own and of other organizations.", async () => {
    const { forCharges, forPreviews } = bound(make());
    const ended = await orderOf({
      preview: forPreviews("org_a", NEVER).count([[LONG]]),
      other: forPreviews("org_b", NEVER).count([[LONG]]),
      charge: forCharges("org_a").count([[WORDS]]),
    });
    expect(ended[0]).toBe("charge");
  });

  test("A short count does not wait for the long counts of another organization.", async () => {
    const { forCharges, forPreviews } = bound(make());
    for (const counterOf of [forCharges, (id: string) => forPreviews(id, NEVER)]) {
      const long = Array.from({ length: 10 }, () => counterOf("org_a").count([[LONG]]));
      const short = counterOf("org_b").count([[WORDS]]);
      expect(await Promise.race([short, ...long])).toEqual([exact(WORDS)]);
    }
  });

  test("However many organizations have previews, a charge waits for one of them at a time.", async () => {
    const { forCharges, forPreviews } = bound(make());
    const previews = Array.from({ length: 20 }, (_, index) => forPreviews(`org_${index}`, NEVER).count([[WORDS]]));
    const ended = await orderOf({
      ...Object.fromEntries(previews.entries()),
      charge: forCharges("org_a").count([[WORDS]]),
    });
    expect(ended).toHaveLength(21);
    expect(ended.indexOf("charge")).toBeLessThan(3);
  });

  test("Previews advance while charges wait.", async () => {
    const { forCharges, forPreviews } = bound(make());
    const ended = await orderOf({
      charge: forCharges("org_a").count([[dense(100_000)]]),
      preview: forPreviews("org_b", NEVER).count([[WORDS]]),
    });
    expect(ended).toEqual(["preview", "charge"]);
  });

  test("A charge is counted alike, whatever others count meanwhile.", async () => {
    const tokenCounter = make();
    const texts = [dense(3_000), "prose ".repeat(3_000), "x".repeat(300_000)];
    const charges = tokenCounter.forCharges("org_b");
    const alone = await charges.count([texts]);
    const noise = Array.from({ length: 20 }, (_, index) => {
      const text = dense(20_000, index * 20_000);
      return index % 2 === 0
        ? tokenCounter.forCharges("org_a").count([[text]])
        : tokenCounter.countPrompt("org_c", [text], NEVER);
    });
    expect(await Promise.all([charges.count([texts]), charges.count([texts])])).toEqual([alone, alone]);
    expect((await Promise.all(noise)).every((counts) => counts !== undefined)).toBe(true);
  });
});

test("A preview is given up after its deadline or when its client disconnects, and a charge is not.", async () => {
  const { forCharges, forPreviews } = bound(make({ previewDeadlineMs: 1 }));
  const text = dense(100_000);
  const charge = forCharges("org_a").count([[text]]);
  expect(await forPreviews("org_a", NEVER).count([[text]])).toBeUndefined();
  expect(await charge).toEqual([expect.any(Number)]);
  await counter.stop();
  const leaving = new AbortController();
  const again = bound(make());
  const charging = again.forCharges("org_a").count([[text]]);
  const preview = again.forPreviews("org_a", leaving.signal).count([[text]]);
  leaving.abort();
  expect(await preview).toBeUndefined();
  expect(await charging).toEqual([expect.any(Number)]);
});

test("An organization's previews are counted one after another, so that its own do not make each other late.", async () => {
  const tokenCounter = make();
  const ended: string[] = [];
  const leaving = new AbortController();
  const count = async (name: string, text: string, signal = NEVER) => {
    const result = await tokenCounter.countPrompt("org_a", [text], signal);
    ended.push(name);
    return result;
  };
  // The first pieces of the short texts would be counted before the last ones of the long text if they took turns.
  const counts = [
    count("long", dense(100_000)),
    count("of a client that disconnected", "a few words", leaving.signal),
    count("short", "a few words"),
  ];
  leaving.abort();
  expect(await Promise.all(counts)).toEqual([
    { tokens: expect.any(Number), isWhole: true },
    undefined,
    { tokens: 3, isWhole: true },
  ]);
  expect(ended).toEqual(["long", "of a client that disconnected", "short"]);
});

test("A preview says whether its text was counted whole.", async () => {
  const tokenCounter = make();
  const isWhole = async (...texts: string[]) => (await tokenCounter.countPrompt("org_a", texts, NEVER))?.isWhole;
  expect(await isWhole("a".repeat(256 * 1024))).toBe(true);
  expect(await isWhole("a".repeat(200 * 1024), "b".repeat(60 * 1024))).toBe(false);
});

test("Many different texts do not use up the memory of the thread.", async () => {
  const log = keepLog();
  const charges = counting({ log, heapMiBMax: 140 });
  let random = 1;
  // Characters of three tokens each, so that a window has as many tokens as it can.
  const rare = () => {
    random = (random * 48_271) % 2_147_483_647;
    return String.fromCharCode(0x3400 + (random % 6_500));
  };
  for (let index = 0; index < 8; index += 1) await charges.count([[Array.from({ length: 262_144 }, rare).join("")]]);
  expect(log.messages("error")).toEqual([]);
});

test("If the thread cannot be started, counts are given up, and begin again later.", async () => {
  const log = keepLog();
  const charges = counting({ log, heapMiBMax: 4, startRetryMs: 1 });
  expect(await charges.count([["a"]])).toBeUndefined();
  expect(log.messages("warn")).toEqual(Array(5).fill("the token counter's thread could not be started"));
  expect(log.messages("error")).toEqual([
    "the token counter does not work: tokens are estimated from bytes until it can be started",
  ]);
  expect(await charges.count([["a"]])).toBeUndefined();
  expect(log.messages("warn")).toHaveLength(5);
});

test("A text that ends the thread twice is given up, and the counts of others go on.", async () => {
  const log = keepLog();
  const tokenCounter = make({ log, pieceTimeoutMs: 1 });
  expect(await tokenCounter.forCharges("org_a").count([[dense(20_000)]])).toBeUndefined();
  expect(log.messages("error")).toEqual([
    "the token counter's thread ended while it counted",
    "the token counter's thread ended while it counted",
    "a text cannot be counted: its tokens are estimated from bytes",
  ]);
  expect(tokenCounter.isRunning).toBe(false);
});

test("A stop resolves the running counts, and later counts are refused.", async () => {
  const tokenCounter = make();
  const charges = tokenCounter.forCharges("org_a");
  const running = [charges.count([["a"]]), charges.count([[dense(20_000)]])];
  await tokenCounter.stop();
  expect(await Promise.all(running)).toEqual([undefined, undefined]);
  expect(await charges.count([["a"]])).toBeUndefined();
  expect(tokenCounter.isRunning).toBe(false);
});

/** The methods of a counter. A preview has the result of a charge. */
function bound(tokenCounter: TokenCounter) {
  return {
    forCharges: (id: string) => tokenCounter.forCharges(id),
    forPreviews: (id: string, signal: AbortSignal) => ({
      count: async ([texts = []]: readonly (readonly string[])[]) => {
        const count = await tokenCounter.countPrompt(id, texts, signal);
        return count && [count.tokens];
      },
    }),
  };
}

test("Samples of long texts are bounded, evenly spaced and have the ratio to the whole.", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(400_000), { minLength: 1, maxLength: 20 }), (lengths) => {
      const texts = lengths.map((length) => "x".repeat(length));
      const total = lengths.reduce((sum, length) => sum + length, 0);
      const { texts: samples, scale } = sampleOf(texts);
      const taken = samples.reduce((sum, { length }) => sum + length, 0);
      expect(taken).toBeLessThanOrEqual(256 * 1024);
      if (total > 0) expect(taken * scale).toBeCloseTo(total, 3);
      if (total > 256 * 1024) expect(taken).toBeGreaterThan(255 * 1024 - 1024 * 20);
    }),
    { numRuns: 200 },
  );
  const { texts } = sampleOf(["a".repeat(300_000), "b".repeat(300_000)]);
  const share = texts.join("").replaceAll("a", "").length / texts.join("").length;
  expect(share).toBeCloseTo(0.5, 1);
});
