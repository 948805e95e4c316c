import { describe, expect, test } from "vitest";
import {
  limitTexts,
  NO_LIMITS,
  readCredits,
  readCreditsUpTo,
  readExpiry,
  readLimits,
  readOptionalCredits,
  readPriority,
  readWarnings,
} from "./read-form.ts";

describe("credits", () => {
  test.each([
    ["100", 100],
    ["50.00", 50],
    [" 1,250.5 ", 1250.5],
    ["1,250,000", 1_250_000],
    ["0.000001", 0.000001],
  ])("The amount %j is read.", (text, value) => {
    expect(readCredits(text)).toEqual({ value });
  });

  test("The amount 0 is read where it is allowed.", () => {
    expect(readCredits("0", true)).toEqual({ value: 0 });
    expect(readCredits("", true)).toHaveProperty("error");
  });

  test.each(["", "0", "-5", "+5", "1e3", "abc", "0.0000001", "2000000000", "1 250", "1'250", "٥٠", "５０"])(
    "The amount %j is refused.",
    (text) => {
      expect(readCredits(text)).toHaveProperty("error");
    },
  );

  test.each([
    ["50,00", "50.00"],
    ["50,0", "50.0"],
    ["0,5", "0.5"],
    ["1,250", "1250 or 1.250"],
    ["1250,50", "1250.50"],
  ])("The amount %j with an ambiguous comma is refused.", (text, suggestion) => {
    expect(readCredits(text)).toEqual({ error: expect.stringMatching(`^Ambiguous: .*${suggestion}`) });
  });

  test.each(["1.250,50", "1,25,000", ",5", "5,", "1,250.5,0", "12,34.5"])("The amount %j is refused.", (text) => {
    expect(readCredits(text)).toHaveProperty("error");
  });

  test("An optional amount can be blank.", () => {
    expect(readOptionalCredits(" ")).toEqual({ value: null });
    expect(readOptionalCredits("x")).toHaveProperty("error");
  });

  test("An amount above the available credits is refused, and the error names them.", () => {
    expect(readCreditsUpTo("810", 810)).toEqual({ value: 810 });
    expect(readCreditsUpTo("810.000001", 810)).toEqual({ error: "Only 810.00 credits are available." });
    expect(readCreditsUpTo("", 810)).toHaveProperty("error");
  });
});

test("A priority is a whole number up to 1000.", () => {
  expect([readPriority("0"), readPriority(" 1000 ")]).toEqual([{ value: 0 }, { value: 1000 }]);
  for (const text of ["", "-1", "1001", "1.5", "first"]) expect(readPriority(text)).toHaveProperty("error");
});

describe("limits", () => {
  test("Blank limits are the defaults.", () => {
    expect(readLimits(NO_LIMITS)).toEqual({ value: null });
    expect(readLimits({ ...NO_LIMITS, requests_per_minute: "60" })).toEqual({ value: { requests_per_minute: 60 } });
  });

  test("Limits are the same after formatting and reading.", () => {
    const limits = { requests_per_minute: 60, concurrent_requests: 2 };
    expect(readLimits(limitTexts(limits))).toEqual({ value: limits });
  });

  test("A limit can have commas between thousands, like the placeholders.", () => {
    const read = readLimits({ ...NO_LIMITS, tokens_per_minute: "1,000,000" });
    expect(read).toEqual({ value: { tokens_per_minute: 1_000_000 } });
  });

  test.each(["0", "-1", "1.5", "1,5", "10,00", "1.000", "many"])("The limit %j is refused.", (text) => {
    expect(readLimits({ ...NO_LIMITS, tokens_per_minute: text })).toMatchObject({ wrong: "tokens_per_minute" });
  });
});

describe("an expiry", () => {
  const nowMs = Date.parse("2026-11-21T12:00:00Z");

  test("An expiry is never, after some days, or at the end of a day.", () => {
    expect(readExpiry("never", "", nowMs)).toEqual({ value: null });
    expect(readExpiry("30", "", nowMs)).toEqual({ value: "2026-12-21T12:00:00.000Z" });
    expect(readExpiry("date", "2027-01-31", nowMs)).toEqual({ value: "2027-01-31T23:59:59.000Z" });
  });

  test("An expiry without a date or in the past is refused.", () => {
    expect(readExpiry("date", "2026-11-01", nowMs)).toHaveProperty("error");
    expect(readExpiry("date", "", nowMs)).toHaveProperty("error");
  });
});

test("Credit warnings are read line by line; none are null, and a wrong one is named.", () => {
  expect(readWarnings("100\n\n 2.5 \n100")).toEqual({ value: [100, 2.5] });
  expect(readWarnings(" \n")).toEqual({ value: null });
  expect(readWarnings("5\n50,00")).toEqual({
    error: "50,00: Ambiguous: use a point for decimals, as in 50.00.",
  });
  expect(readWarnings(Array.from({ length: 11 }, (_, index) => index + 1).join("\n"))).toEqual({
    error: "Enter at most 10 amounts.",
  });
});
