import * as fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { EVENT_LENGTH_MAX } from "../http/event-stream.ts";
import { byteBoundsOf } from "./bounds.ts";

const EVENTS = "text/event-stream";
const FRAMES = "application/vnd.amazon.eventstream";
const TOO_LONG = expect.objectContaining({ failure: "malformed" });

/** Feeds an answer in pieces of a size; gives what went on. */
function feed(mediaType: string, bytes: Buffer, size = 65_536, passed: Uint8Array[] = []): Buffer {
  const bounds = byteBoundsOf(mediaType, (text) => text);
  for (let start = 0; start < bytes.length; start += size) {
    bounds(bytes.subarray(start, start + size), (whole) => passed.push(whole));
  }
  return Buffer.concat(passed);
}

describe("Events", () => {
  const line = `data: ${"x".repeat(1_000)}`;

  test.each(["\n", "\r", "\r\n"])("ended by %j are passed on in a normal form.", (end) => {
    const bytes = Buffer.from(`: a comment${end}event: e${end}${line}${end}${end}data:${end}${end}`.repeat(2_000));
    expect(feed(EVENTS, bytes, 777).toString()).toBe(`${line}\n\n`.repeat(2_000));
  });

  test("of several lines are passed on.", () => {
    expect(feed(EVENTS, Buffer.from("data: {\r\ndata: }\r\n\r\n"), 1).toString()).toBe("data: {\ndata: }\n\n");
  });

  test.each(["\n", "\r", "\r\n"])("without an end, with lines ended by %j, are not passed on.", (end) => {
    const bytes = Buffer.from(`${line}${end}`.repeat(EVENT_LENGTH_MAX / 1_000));
    expect(() => feed(EVENTS, bytes, 7_777)).toThrow(TOO_LONG);
  });

  test("before a line without an end are passed on.", () => {
    const passed: Uint8Array[] = [];
    const bytes = Buffer.from(`data: a\n\n${"x".repeat(EVENT_LENGTH_MAX + 1)}`);
    expect(() => feed(EVENTS, bytes, 65_536, passed)).toThrow(TOO_LONG);
    expect(String(Buffer.concat(passed))).toBe("data: a\n\n");
  });
});

describe("Frames", () => {
  const frame = (length: number) => {
    const bytes = Buffer.alloc(length, length % 251);
    bytes.writeUInt32BE(length);
    return bytes;
  };

  test("are passed on whole, whatever the size of the pieces.", () => {
    const lengths = fc.array(fc.integer({ min: 16, max: 300 }), { maxLength: 20 });
    fc.assert(
      fc.property(lengths, fc.integer({ min: 1, max: 100 }), fc.nat(15), (all, size, rest) => {
        const whole = Buffer.concat(all.map(frame));
        const cut = Buffer.concat([whole, frame(300).subarray(0, rest)]);
        expect(feed(FRAMES, cut, size).equals(whole)).toBe(true);
      }),
    );
  });

  test("of 16 MiB in small pieces are copied a few times in all.", () => {
    let copied = 0;
    const { concat } = Buffer;
    const spy = vi.spyOn(Buffer, "concat").mockImplementation((list, length) => {
      copied += list.reduce((sum, { length }) => sum + length, 0);
      return concat(list, length);
    });
    const { length } = frame(EVENT_LENGTH_MAX);
    let passed = 0;
    const bounds = byteBoundsOf(FRAMES, (text) => text);
    const pieces = frame(length);
    for (let start = 0; start < length; start += 16_000) {
      const begun = bounds(pieces.subarray(start, start + 16_000), (whole) => {
        passed += whole.length;
      });
      expect(begun).toBe(start + 16_000 < length ? start + 16_000 : 0);
    }
    spy.mockRestore();
    expect(passed).toBe(length);
    expect(copied).toBeLessThan(3 * length);
  }, 180_000);

  test("are copied from pieces, which are not kept.", () => {
    const whole = Buffer.concat([frame(300), frame(17)]);
    const bounds = byteBoundsOf(FRAMES, (text) => text);
    const passed: Buffer[] = [];
    const piece = Buffer.alloc(1);
    for (const byte of whole) {
      piece[0] = byte;
      bounds(piece, (bytes) => passed.push(Buffer.from(bytes)));
    }
    expect(Buffer.concat(passed).equals(whole)).toBe(true);
  });

  test("of an invalid length are refused after the valid ones before them.", () => {
    const passed: Uint8Array[] = [];
    expect(() => feed(FRAMES, Buffer.concat([frame(20), Buffer.from([0x7f, 0, 0, 0])]), 100, passed)).toThrow(TOO_LONG);
    expect(passed).toEqual([frame(20)]);
    expect(() => feed(FRAMES, Buffer.from([0, 0, 0, 1]))).toThrow(TOO_LONG);
  });
});

test("An unstreamed answer is bounded as a whole.", () => {
  expect(feed("application/json", Buffer.alloc(1_000)).length).toBe(1_000);
  expect(() => feed("application/json", Buffer.alloc(17 * 1024 * 1024))).toThrow(TOO_LONG);
});
