import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { JsonScanner } from "./json-scanner.ts";

const NO_BOUND = Number.MAX_SAFE_INTEGER;
const scan = (text: string, bounds: { depth?: number; values?: number }) =>
  new JsonScanner({ depth: NO_BOUND, values: NO_BOUND, ...bounds }).scan(Buffer.from(text));

function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

/** Counts like the scanner, where an empty array or object counts as containing a value. */
function valuesOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 1;
  const inner = Object.values(value).map(valuesOf);
  return 1 + (inner.length === 0 ? 1 : inner.reduce((sum, one) => sum + one, 0));
}

describe("JsonScanner", () => {
  test("The scanner finds the depth and the number of values of any JSON text, however it is split.", () => {
    const strange = fc.oneof(fc.jsonValue(), fc.array(fc.constantFrom('"', "\\", "{", "[", ",", '\\"', "}]")));
    fc.assert(
      fc.property(strange, fc.nat(3), fc.integer({ min: 1, max: 7 }), (value, space, size) => {
        const bytes = Buffer.from(JSON.stringify(value, undefined, space));
        const depth = depthOf(value);
        const values = valuesOf(value);
        const met = (bounds: { depth: number; values: number }) => {
          const scanner = new JsonScanner(bounds);
          for (let at = 0; at < bytes.length; at += size) {
            const excess = scanner.scan(bytes.subarray(at, at + size));
            if (excess !== undefined) return excess;
          }
          return undefined;
        };
        expect(met({ depth, values })).toBeUndefined();
        if (depth > 0) expect(met({ depth: depth - 1, values })).toBe("depth");
        if (values > 1) expect(met({ depth, values: values - 1 })).toBe("values");
      }),
      { numRuns: 3_000 },
    );
  });

  test("The scanner counts nothing inside strings.", () => {
    expect(scan(`["${"[{,".repeat(1_000)}","\\"[[[,,,"]`, { depth: 1, values: 3 })).toBeUndefined();
  });

  test("The scanner finds the end of a long string, however its quotes and backslashes are split.", () => {
    const piece = fc.constantFrom(
      '"',
      "\\",
      "\\\\",
      "[",
      ",",
      "a",
      "a".repeat(60),
      "\\".repeat(65),
      `${"b".repeat(90)}"`,
    );
    const text = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(""));
    fc.assert(
      fc.property(fc.array(text, { minLength: 1, maxLength: 3 }), fc.integer({ min: 1, max: 300 }), (texts, size) => {
        const bytes = Buffer.from(JSON.stringify(texts));
        const excessOf = (values: number) => {
          const scanner = new JsonScanner({ depth: 1, values });
          const starts = Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) => index * size);
          return starts.map((at) => scanner.scan(bytes.subarray(at, at + size))).find((excess) => excess !== undefined);
        };
        expect(excessOf(1 + texts.length)).toBeUndefined();
        expect(excessOf(texts.length)).toBe("values");
      }),
      { numRuns: 3_000 },
    );
  });

  test("The scanner stops at the first byte that exceeds a limit.", () => {
    expect(scan("[[[", { depth: 2 })).toBe("depth");
    expect(scan("[[", { depth: 2 })).toBeUndefined();
    expect(scan("[1,2", { values: 3 })).toBeUndefined();
    expect(scan("[1,2,", { values: 3 })).toBe("values");
  });
});
