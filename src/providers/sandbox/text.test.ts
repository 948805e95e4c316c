import fc from "fast-check";
import { expect, test } from "vitest";
import { indexOfFirst } from "./text.ts";

test("The search finds the same position as indexOf.", () => {
  // Few different characters, so that texts nearly match at many places.
  const text = (maxLength: number) => fc.string({ unit: fc.constantFrom("a", "a", "a", "b", "\ud83d"), maxLength });
  fc.assert(
    fc.property(text(6), text(40), (wanted, searched) => {
      expect(indexOfFirst(wanted, searched)).toBe(searched.indexOf(wanted));
    }),
    { numRuns: 3_000 },
  );
});

test("The search reads each character of a long text that nearly matches a bounded number of times.", () => {
  const half = 50_000;
  const wanted = `${"a".repeat(half)}b${"a".repeat(half)}`;
  expect(indexOfFirst(wanted, `${"a".repeat(8 * half)}c`)).toBe(-1);
  expect(indexOfFirst(wanted, `${"a".repeat(8 * half)}b${"a".repeat(half)}`)).toBe(7 * half);
});
