import { describe, expect, test } from "vitest";
import { differencesOf, placesIn, splitCases } from "./splits.ts";

/** `npm run soak` splits longer streams at every byte too. */
const ALL_UP_TO_BYTES = 250;

describe("A stream that arrives in two parts, split at any byte, gives the same events, text, calls and charge:", () => {
  test.each(splitCases())("$name", async (one) => {
    expect(await differencesOf(one, placesIn(one, ALL_UP_TO_BYTES))).toEqual([]);
  });
});
