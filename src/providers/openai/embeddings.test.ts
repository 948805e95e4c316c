import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { dimensionsOf, type EmbeddingVector, NumbersText, toEncodedText } from "../../api/embeddings/vector.ts";
import { readEmbeddings } from "./embeddings.ts";

type Encoding = "float" | "base64";

function read(text: string, count: number, encoding: Encoding, turns: unknown[] = []) {
  const inputs = Array.from({ length: count }, () => "text");
  const inTurn = async <Result>(work: () => Result) => {
    turns.push(work);
    return work();
  };
  return readEmbeddings(text, { request: { model: "m", inputs, encoding }, inTurn }, (said) => said);
}

/** Returns how an answer is understood: the vectors as they would be sent, or why it is refused. */
async function understood(text: string, count: number, encoding: Encoding) {
  try {
    const { vectors, ...others } = await read(text, count, encoding);
    const sent = (vector: EmbeddingVector) => ({
      dimensions: dimensionsOf(vector),
      // A zero has no sign once it was parsed and written.
      numbers: (JSON.parse(toEncodedText(vector, "float")) as number[]).map((number) => number + 0),
    });
    const isVector = (vector: unknown) => dimensionsOf(vector) !== undefined;
    return { vectors: vectors.map((vector) => (isVector(vector) ? sent(vector as EmbeddingVector) : null)), others };
  } catch (error) {
    return String(error);
  }
}

const isText = (vector: unknown) => vector instanceof NumbersText;
const itemOf = (embedding: string, index = 0) => `{"object":"embedding","index":${index},"embedding":${embedding}}`;
const listOf = (...items: string[]) => `{"object":"list","data":[${items.join(",")}],"model":"m"}`;

describe("The numbers of an answer are passed on without being parsed:", () => {
  test.each([
    ["as most upstreams write them", "[-0.0069292835,0,1.5e-05,-12E+3]"],
    ["on lines of their own", "[\n        -0.006,\n        0.25\n      ]"],
    ["as many as the expression takes", `[${"-1234567890.12345678901234567890e-12, ".repeat(8_191)}1]`],
  ])("%s", async (_name, numbers) => {
    const { vectors } = await read(listOf(itemOf(numbers, 1), itemOf("[1]")), 2, "float");
    expect(vectors).toEqual([new NumbersText("[1]"), new NumbersText(numbers)]);
    expect(dimensionsOf(vectors[1])).toBe(JSON.parse(numbers).length);
  });

  test("but not if they have to be base64.", async () => {
    expect((await read(listOf(itemOf("[1,2]")), 1, "base64")).vectors).toEqual([[1, 2]]);
  });

  test("those of a long answer a part at a time, in turn.", async () => {
    const turns: unknown[] = [];
    const numbers = `[${"0.25,".repeat(8_000)}1]`;
    const { vectors } = await read(
      listOf(...Array.from({ length: 30 }, (_, at) => itemOf(numbers, at))),
      30,
      "float",
      turns,
    );
    expect(vectors).toEqual(Array(30).fill(new NumbersText(numbers)));
    expect(turns.length).toBe(5);
  });
});

describe("The whole answer is parsed:", () => {
  test.each([
    ["a number that is infinite", listOf(itemOf("[1e999]"))],
    ["a number with too many digits", listOf(itemOf(`[${"9".repeat(400)}]`))],
    ["a vector that is too long", listOf(itemOf(`[${"1,".repeat(8_192)}1]`))],
    ["a field twice", '{"data":[{"embedding":[1],"embedding":[2]}]}'],
    ["an escaped name", '{"data":[{"\\u0065mbedding":[0]}]}'],
    ["an unusual number, and a field elsewhere", '{"data":[{"embedding":[0e000]}],"usage":{"embedding":[1]}}'],
    ["a field elsewhere", '{"data":[{"embedding":[1]}],"usage":{"embedding":[2]}}'],
    ["an escaped name, and a field elsewhere", '{"data":[{"\\u0065mbedding":[0]}],"usage":{"embedding":[1]}}'],
    ["an escaped text", '{"data":[{"embedding":"\\u00000"}],"usage":{"embedding":[1]}}'],
    ["a text that looks like a field", '{"data":[{"embedding":[1],"a\\"embedding":[2]}]}'],
  ])("%s", async (_name, text) => {
    expect((await read(text, 1, "float")).vectors.some(isText)).toBe(false);
    expect(await understood(text, 1, "float")).toEqual(await understood(text, 1, "base64"));
  });
});

test("An object that looks like checked numbers is not a vector.", async () => {
  const { vectors } = await read(listOf(itemOf('{"json":"[1]"}')), 1, "float");
  expect(dimensionsOf(vectors[0])).toBeUndefined();
});

test("Any answer is understood as one whose numbers are parsed.", async () => {
  const number = fc.oneof(
    fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
    fc.integer({ min: -9, max: 9 }).map(String),
    fc.constantFrom(
      "01",
      "1.",
      ".5",
      "+1",
      "-",
      "NaN",
      "1e999",
      "1e5",
      "0e000",
      "null",
      '"1"',
      "[1]",
      "-0",
      "1 2",
      "0x1",
    ),
  );
  const usual = fc.double({ noNaN: true, noDefaultInfinity: true, min: -1, max: 1 }).map(String);
  const space = fc.constantFrom("", "", " ", "\n  ", "\t", "\u00a0", " ".repeat(17));
  const arrayOf = (element: fc.Arbitrary<string>) =>
    fc.tuple(fc.array(element, { maxLength: 4 }), space).map(([all, gap]) => `[${gap}${all.join(`,${gap}`)}${gap}]`);
  const embedding = fc.oneof(
    arrayOf(usual),
    arrayOf(usual),
    arrayOf(number),
    fc.constantFrom('"AAAA"', "{}", "[0]", '"\\u00000"'),
  );
  const name = fc.constantFrom("embedding", "embedding", "embedding", "\\u0065mbedding", 'a\\"embedding', "other");
  const field = fc.tuple(name, space, embedding).map(([key, gap, value]) => `"${key}"${gap}:${gap}${value}`);
  const index = fc.constantFrom('"index":0', '"index":1', '"index":9', '"index":"0"');
  const item = fc.array(fc.oneof(field, field, index), { maxLength: 3 }).map((fields) => `{${fields.join(",")}}`);
  const beside = fc.constantFrom("", ',"usage":{"embedding":[1]}', ',"id":"\\"embedding\\":[1]"', ',"data":[]', "x");
  const answer = fc
    .tuple(fc.array(fc.oneof(item, fc.constant("null")), { maxLength: 3 }), beside)
    .map(([items, others]) => `{"data":[${items.join(",")}]${others}}`);
  await fc.assert(
    fc.asyncProperty(answer, fc.integer({ min: 1, max: 3 }), async (text, count) => {
      expect(await understood(text, count, "float")).toEqual(await understood(text, count, "base64"));
    }),
    { numRuns: 5_000 },
  );
});
