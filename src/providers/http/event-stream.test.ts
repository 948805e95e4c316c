import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { countOf, seedOfRun, timeoutOf } from "../../../test/support/counts.ts";
import { EVENT_LENGTH_MAX, EventStreamReader } from "./event-stream.ts";

const TOO_LONG = /^The upstream sent an event of more than \d+ characters$/;

/** Reads a whole stream as the standard words it: slow, but easy to compare with the standard. */
function reference(bytes: Uint8Array): string[] {
  const text = new TextDecoder("utf-8").decode(bytes);
  const events: string[] = [];
  let data = "";
  const lines = text.split(/\r\n|\r|\n/);
  // The text after the last line end is not a line.
  for (const line of lines.slice(0, -1)) {
    if (line === "") {
      if (data !== "" && data !== "\n") events.push(data.slice(0, -1));
      data = "";
      continue;
    }
    const [field = ""] = line.split(":", 1);
    const value = line.slice(field.length + 1).replace(/^ /, "");
    if (field === "data") data += `${value}\n`;
  }
  return events.filter((event) => event !== "");
}

function read(pieces: readonly Uint8Array[]): string[] {
  const reader = new EventStreamReader();
  const events: string[] = [];
  for (const piece of pieces) reader.push(Buffer.from(piece), events);
  return events;
}

function splitAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((one, other) => one - other);
  return [0, ...places].map((start, index) => bytes.subarray(start, places[index] ?? bytes.length));
}

const bytesOf = (text: string) => new TextEncoder().encode(text);

describe("The reader accepts each form that the standard allows:", () => {
  test.each([
    ["line feeds", "data: a\n\ndata: b\n\n", ["a", "b"]],
    ["carriage returns", "data: a\r\rdata: b\r\r", ["a", "b"]],
    ["both", "data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]],
    ["a byte order mark", "\uFEFFdata: a\n\n", ["a"]],
    ["a second byte order mark, which is none", "\uFEFF\uFEFFdata: a\n\n", []],
    ["comments", ": keep-alive\n\ndata: a\n: b\n\n", ["a"]],
    ["data of many lines", "data: a\ndata:b\ndata:  c\n\n", ["a\nb\n c"]],
    ["other fields", "event: x\nid: 1\nretry: 5\ndata: a\nother\ndatabase: b\n\n", ["a"]],
    ["no space after the colon", "data:a\n\n", ["a"]],
    ["events without data", "data\n\ndata:\n\n\n\nevent: x\n\ndata: a\n\n", ["a"]],
    ["an unfinished event, which is none", "data: a\n\ndata: b\n", ["a"]],
    ["an empty line of data inside", "data: a\ndata\ndata: b\n\n", ["a\n\nb"]],
  ])("%s", (_name, text, events) => {
    expect(read([bytesOf(text)])).toEqual(events);
    expect(read([...bytesOf(text)].map((byte) => Uint8Array.of(byte)))).toEqual(events);
    expect(reference(bytesOf(text))).toEqual(events);
  });
});

test("A character of four bytes is read at every split.", () => {
  const bytes = bytesOf("data: a€😀\n\n");
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    for (let second = cut; second <= bytes.length; second += 1) {
      expect(read([bytes.subarray(0, cut), bytes.subarray(cut, second), bytes.subarray(second)])).toEqual(["a€😀"]);
    }
  }
});

test("Invalid UTF-8 becomes replacement characters.", () => {
  const bytes = Uint8Array.of(...bytesOf("data: a"), 0xff, 0xe2, 0x82, ...bytesOf("b\n\n"));
  expect(read([bytes])).toEqual(["a\uFFFD\uFFFDb"]);
});

test(
  "Any split of any stream results in the events of the reference.",
  () => {
    const token = fc.constantFrom(
      "data",
      "data: ",
      "data:",
      ":",
      " ",
      "\n",
      "\r",
      "\r\n",
      "\n\n",
      "é€😀",
      "\uFEFF",
      "x",
      "id: 1",
    );
    const pieces = fc.array(fc.oneof(token.map(bytesOf), fc.uint8Array({ maxLength: 3 })), { maxLength: 24 });
    const stream = pieces.map((parts) => Uint8Array.from(parts.flatMap((part) => [...part])));
    const cuts = fc.array(fc.nat(200), { maxLength: 12 });
    fc.assert(
      fc.property(stream, cuts, (bytes, places) => {
        expect(read(splitAt(bytes, places))).toEqual(reference(bytes));
      }),
      { numRuns: countOf("events"), seed: seedOfRun() },
    );
  },
  timeoutOf("events"),
);

const MIB = 1024 * 1024;

describe("The reader's buffer is bounded:", () => {
  const longest = "x".repeat(EVENT_LENGTH_MAX - "data: ".length);

  test("an event of the maximum length is accepted.", () => {
    expect(read([bytesOf(`data: ${longest}\n\n`)])).toEqual([longest]);
  });

  test.each([
    ["a line too long", [`data: ${longest}x`]],
    ["a comment too long", [`: ${longest}xxxxx`]],
    ["too many lines of data", [`data: ${longest}\n`, `data: ${longest}\n`]],
    ["a long line in many pieces", Array.from({ length: 17 }, () => "x".repeat(MIB))],
  ])("%s is refused.", (_name, texts) => {
    expect(() => read(texts.map(bytesOf))).toThrow(TOO_LONG);
  });

  test("the events before one that is too long are returned.", () => {
    const reader = new EventStreamReader();
    const events: string[] = [];
    expect(() => reader.push(Buffer.from(`data: a\n\ndata: ${longest}x\n\n`), events)).toThrow(TOO_LONG);
    expect(events).toEqual(["a"]);
  });

  test("a million empty lines and events result in no events.", () => {
    expect(
      read([bytesOf("\n".repeat(1_000_000)), bytesOf("data:\r\n\r\n".repeat(200_000)), bytesOf("\r".repeat(1e6))]),
    ).toEqual([]);
  });
});
