import { expect, test } from "vitest";
import { creditsFor, isSupportedCurrency, minorUnits, moneyNumber } from "./money.ts";

test.each([
  ["10", "eur", 1_000n],
  ["12.29", "eur", 1_229n],
  ["0.01", "usd", 1n],
  ["500", "jpy", 500n],
  ["500.0", "krw", 500n],
  ["1e2", "eur", 10_000n],
  ["9999999999.99", "eur", 999_999_999_999n],
])("%s %s are %s of the smallest unit", (amount, currency, minor) => {
  expect(minorUnits(amount, currency)).toBe(minor);
  expect(moneyNumber(minor, currency)).toBe(Number(amount));
});

test.each([
  ["12.345", "eur"],
  ["0.5", "jpy"],
  ["0", "eur"],
  ["-1", "eur"],
  ["", "eur"],
  ["1,5", "eur"],
  ["10000000000", "eur"],
])("%s is no amount of %s", (amount, currency) => {
  expect(minorUnits(amount, currency)).toBeUndefined();
});

test.each([
  [1_000n, "eur", "10", 100_000_000n],
  [1_229n, "eur", "0.1", 1_229_000n],
  [1n, "eur", "0.333333333", 3_333n],
  [500n, "jpy", "0.07", 35_000_000n],
])("%s of %s at %s credits for a unit buy %s micro-credits", (minor, currency, rate, credits) => {
  expect(creditsFor(minor, currency, rate)).toBe(credits);
});

test("currencies whose amounts have further rules at Stripe are refused by name", () => {
  for (const currency of ["kwd", "bhd", "isk", "ugx", "EUR", "euro", ""])
    expect(isSupportedCurrency(currency)).toBe(false);
  for (const currency of ["eur", "jpy", "usd", "huf"]) expect(isSupportedCurrency(currency)).toBe(true);
});
