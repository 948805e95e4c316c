import { describe, expect, test } from "vitest";
import {
  limitTexts,
  NO_LIMITS,
  readCredits,
  readExpiry,
  readLimits,
  readOptionalCredits,
  readPriority,
} from "./read-form.ts";

describe("credits", () => {
  test.each([
    ["100", 100],
    [" 1,250.5 ", 1250.5],
    ["0.000001", 0.000001],
  ])("%s", (text, value) => {
    expect(readCredits(text)).toEqual({ value });
  });

  test.each(["", "0", "-5", "1e3", "abc", "0.0000001", "2000000000"])("not %j", (text) => {
    expect(readCredits(text)).toHaveProperty("error");
  });

  test("may be left open where they are optional", () => {
    expect(readOptionalCredits(" ")).toEqual({ value: null });
    expect(readOptionalCredits("x")).toHaveProperty("error");
  });
});

test("a priority is a whole number up to 1000", () => {
  expect([readPriority("0"), readPriority(" 1000 ")]).toEqual([{ value: 0 }, { value: 1000 }]);
  for (const text of ["", "-1", "1001", "1.5", "first"]) expect(readPriority(text)).toHaveProperty("error");
});

describe("limits", () => {
  test("that are left open are the service's", () => {
    expect(readLimits(NO_LIMITS)).toEqual({ value: null });
    expect(readLimits({ ...NO_LIMITS, requests_per_minute: "60" })).toEqual({ value: { requests_per_minute: 60 } });
  });

  test("come back as they were", () => {
    const limits = { requests_per_minute: 60, concurrent_requests: 2 };
    expect(readLimits(limitTexts(limits))).toEqual({ value: limits });
  });

  test.each(["0", "-1", "1.5", "many"])("are whole numbers, not %j", (text) => {
    expect(readLimits({ ...NO_LIMITS, tokens_per_minute: text })).toMatchObject({ wrong: "tokens_per_minute" });
  });
});

describe("an expiry", () => {
  const nowMs = Date.parse("2026-11-21T12:00:00Z");

  test("is never, after some days, or at the end of a day", () => {
    expect(readExpiry("never", "", nowMs)).toEqual({ value: null });
    expect(readExpiry("30", "", nowMs)).toEqual({ value: "2026-12-21T12:00:00.000Z" });
    expect(readExpiry("date", "2027-01-31", nowMs)).toEqual({ value: new Date("2027-01-31T23:59:59").toISOString() });
  });

  test("is not in the past, and a day", () => {
    expect(readExpiry("date", "2026-11-01", nowMs)).toHaveProperty("error");
    expect(readExpiry("date", "", nowMs)).toHaveProperty("error");
  });
});
