import type { Credits } from "../api/admin/organization.ts";

/**
 * Amounts of credits. A credit is 1,000,000 micro-credits, and every amount in the books is an integer of
 * micro-credits. Prices are integers of pico-credits per token: a price of p credits per million tokens is p micro-credits,
 * or p x 1,000,000 pico-credits, per token.
 */
export type MicroCredits = bigint;
export type PicoCredits = bigint;

export const MICRO_PER_CREDIT = 1_000_000n;
export const PICO_PER_MICRO = 1_000_000n;
/** Largest amount in the books: a signed 64-bit integer, with room for a thousand of the largest to be summed. */
export const MICRO_CREDITS_MAX: MicroCredits = 9_000_000_000_000_000n;

/**
 * Digits after the point that are kept of a cost that a provider reports, enough for the usual prices of one token. A signed
 * 64-bit integer holds the sum of 900,000 of the largest costs.
 */
export const PROVIDER_COST_DIGITS = 10;
/** A larger number is not plausible as the cost of an answer. */
export const PROVIDER_COST_MAX = 1_000;

const DECIMAL = /^(\d{1,15})(?:\.(\d{1,30}))?(?:[eE]([+-]?\d{1,2}))?$/;

/**
 * Reads a decimal text exactly, never through a float, as the number `value / 10^scale`; the scale is not negative. Returns
 * undefined if it is not a plain non-negative decimal number.
 */
export function readDecimal(text: string) {
  const match = DECIMAL.exec(text);
  if (match === null) return undefined;
  const [, whole = "", fraction = "", exponent = "0"] = match;
  const value = BigInt(whole + fraction);
  const scale = fraction.length - Number(exponent);
  return scale >= 0 ? { value, scale } : { value: value * powerOfTen(-scale), scale: 0 };
}

/**
 * Reads a decimal text as an integer of `10^-digits`, rounded up if it is finer. Returns undefined if the text is
 * not a plain non-negative decimal number.
 */
export function parseDecimal(text: string, digits: number): bigint | undefined {
  const decimal = readDecimal(text);
  if (decimal === undefined) return undefined;
  return ceilDivide(decimal.value * powerOfTen(digits), powerOfTen(decimal.scale));
}

/** Converts credits as a person types them ("12.5") to micro-credits; undefined if not a number, finer than a micro-credit, or too large. */
export function parseCredits(text: string): MicroCredits | undefined {
  const decimal = readDecimal(text);
  if (decimal === undefined) return undefined;
  const micro = decimal.value * MICRO_PER_CREDIT;
  const divisor = powerOfTen(decimal.scale);
  if (micro % divisor !== 0n) return undefined;
  const amount = micro / divisor;
  return amount <= MICRO_CREDITS_MAX ? amount : undefined;
}

/** Converts micro-credits to a number of credits, for JSON: the nearest double, which prints the exact decimal up to 2^33 credits. */
export function creditsFromMicro(amount: MicroCredits): number {
  return Number(amount) / 1e6;
}

/** Formats micro-credits as an exact decimal text: "0.000014", "100". */
export function formatCredits(amount: MicroCredits): string {
  return formatDecimal(amount, 6);
}

/** Formats an integer of `10^-digits` as an exact decimal text. */
export function formatDecimal(value: bigint, digits: number): string {
  const sign = value < 0n ? "-" : "";
  const text = (value < 0n ? -value : value).toString().padStart(digits + 1, "0");
  const point = text.length - digits;
  const fraction = text.slice(point).replace(/0+$/, "");
  return `${sign}${text.slice(0, point)}${fraction === "" ? "" : `.${fraction}`}`;
}

/** Formats dollars, as integers of `10^-PROVIDER_COST_DIGITS`, as an exact decimal text. */
export function dollarText(amount: bigint): string {
  return formatDecimal(amount, PROVIDER_COST_DIGITS);
}

/** Converts micro-credits to dollars, as `dollarText` takes them. `perDollar` is the decimal text of the configuration. */
export function dollarsFromMicro(amount: MicroCredits, perDollar: string): bigint {
  const rate = readDecimal(perDollar);
  if (rate === undefined) throw new RangeError("credits.perDollar is no decimal number");
  return (amount * powerOfTen(PROVIDER_COST_DIGITS - 6 + rate.scale)) / rate.value;
}

/** Returns 10^exponent; the exponent is not negative. */
export function powerOfTen(exponent: number): bigint {
  return 10n ** BigInt(exponent);
}

/** Divides non-negative integers, rounding up. */
export function ceilDivide(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor;
}

export function minimum(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

export function maximum(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

/** Throws RangeError for a negative amount, which is a defect of the caller. */
export function assertAmount(amount: MicroCredits): void {
  if (amount < 0n) throw new RangeError("an amount of credits is below 0");
}

type BalanceAmounts = Record<"granted" | "available" | "held" | "spent" | "expired", MicroCredits>;

/** Formats a balance for the admin API: amounts in credits; the total excludes expired credits. */
export function creditsOf(balance: BalanceAmounts): Credits {
  return {
    available: creditsFromMicro(balance.available),
    held: creditsFromMicro(balance.held),
    used: creditsFromMicro(balance.spent),
    total: creditsFromMicro(balance.granted - balance.expired),
  };
}

/** Names credits as `GET /v1/usage` and commands do. */
export function creditsJson({ total, available, used, held }: Credits) {
  return { creditsTotal: total, creditsAvailable: available, creditsUsed: used, creditsHeld: held };
}
