import type { TOP_UP } from "../stores/admin-schema.ts";
import type { RowOf } from "../stores/table.ts";
import { creditsFromMicro, MICRO_CREDITS_MAX, type MicroCredits, minimum, powerOfTen, readDecimal } from "./amount.ts";

/** Amounts of money are integers of the currency's smallest unit, as Stripe states them: https://docs.stripe.com/currencies#minor-units */
const ZERO_DECIMAL = new Set("bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf".split(" "));
/** Currencies with three decimals, and those with zero of which Stripe expects two. Their amounts have further rules. */
const UNSUPPORTED = new Set("bhd iqd jod kwd lyd omr tnd isk ugx".split(" "));
/** Stripe's largest amount has at most twelve digits. */
const MINOR_UNITS_MAX = 999_999_999_999n;

export const isSupportedCurrency = (currency: string) => /^[a-z]{3}$/.test(currency) && !UNSUPPORTED.has(currency);
const digitsOf = (currency: string) => (ZERO_DECIMAL.has(currency) ? 0 : 2);

/** Converts an amount such as "12.50" to the smallest unit; undefined if it is not above 0, too large, or has too many decimals. */
export function minorUnits(amount: string, currency: string): bigint | undefined {
  const { value, scale } = readDecimal(amount) ?? { value: 0n, scale: 0 };
  const [scaled, divisor] = [value * powerOfTen(digitsOf(currency)), powerOfTen(scale)];
  const minor = scaled / divisor;
  return scaled % divisor === 0n && minor > 0n && minor <= MINOR_UNITS_MAX ? minor : undefined;
}

/** Converts an amount in the smallest unit to a number for JSON: the nearest double, which prints the exact decimal. */
export function moneyNumber(minor: bigint, currency: string): number {
  return Number(minor) / 10 ** digitsOf(currency);
}

type TopUpTerms = Pick<RowOf<typeof TOP_UP>, "threshold" | "price" | "monthlyMaximum" | "currency">;

/** Returns the terms of an automatic top-up as the API and events state them. */
export function topUpTerms({ threshold, price, monthlyMaximum, currency }: TopUpTerms) {
  return {
    ...{ threshold: creditsFromMicro(threshold), amount: moneyNumber(price, currency), currency },
    monthly_maximum: moneyNumber(monthlyMaximum, currency),
  };
}

/** Returns the credits that an amount buys at a decimal number of credits for one unit of the currency, rounded down. */
export function creditsFor(minor: bigint, currency: string, creditsPerUnit: string): MicroCredits {
  const { value, scale } = readDecimal(creditsPerUnit) ?? { value: 0n, scale: 0 };
  return minimum((minor * value * powerOfTen(6)) / powerOfTen(scale + digitsOf(currency)), MICRO_CREDITS_MAX);
}
