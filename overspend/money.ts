/**
 * Amounts are whole micro-units, as bigint: a micro-unit is the millionth part of the gateway's unit, such as a credit or a
 * dollar. No amount is ever a floating-point number.
 */
const MICRO_DIGITS = 6;
export const MICRO = 1_000_000n;

const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,3}))?$/;

/**
 * Reads a decimal number as micro-units of a unit that is worth `microPerUnit` of them. Digits below a micro-unit, which
 * gateways with floating-point sums report, are rounded to the nearest. Returns undefined if the text is no decimal number.
 */
export function parseMicro(text: string, microPerUnit: bigint = MICRO): bigint | undefined {
  const found = DECIMAL.exec(text.trim());
  if (found === null) return undefined;
  const [, sign, whole = "", fraction = "", exponent = "0"] = found;
  const places = fraction.length - Number(exponent);
  const scaled = BigInt(whole + fraction) * microPerUnit;
  const amount = places <= 0 ? scaled * 10n ** BigInt(-places) : roundedQuotient(scaled, 10n ** BigInt(places));
  return sign === "-" ? -amount : amount;
}

function roundedQuotient(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor / 2n) / divisor;
}

/** Writes micro-units as a decimal number of units of `microPerUnit` each; the quotient must be a finite decimal. */
export function toUnits(micro: bigint, microPerUnit: bigint = MICRO): string {
  const scaled = (micro * MICRO) / microPerUnit;
  if (scaled * microPerUnit !== micro * MICRO) throw new Error(`${micro} micro-units are no decimal number of units`);
  const digits = (scaled < 0n ? -scaled : scaled).toString().padStart(MICRO_DIGITS + 1, "0");
  const fraction = digits.slice(-MICRO_DIGITS).replace(/0+$/, "");
  return `${scaled < 0n ? "-" : ""}${digits.slice(0, -MICRO_DIGITS)}${fraction === "" ? "" : `.${fraction}`}`;
}

/** Parses JSON with every number as the text that was sent, so that no amount passes through a floating-point number. */
export function parseExactly(text: string): unknown {
  return JSON.parse(text, (_key: string, value: unknown, context?: { source?: string }) =>
    typeof value === "number" ? (context?.source ?? String(value)) : value,
  );
}

/**
 * Reads a value by a path such as `data.items.0.id`; undefined if there is none. `data.items.name=Ada.id` selects the item of
 * a list whose field has that text.
 */
export function valueAt(document: unknown, path: string): unknown {
  let value = document;
  for (const part of path.split(".")) {
    if (typeof value !== "object" || value === null) return undefined;
    const [name = "", wanted] = part.split("=", 2);
    if (wanted === undefined) value = (value as Record<string, unknown>)[name];
    else value = Array.isArray(value) ? value.find((item) => valueAt(item, name) === wanted) : undefined;
  }
  return value;
}

/** Prices of one model, in micro-units a token. */
export interface TokenPrices {
  input: bigint;
  output: bigint;
}

/** Returns the price of some tokens of the prompt and of the answer. */
export function priceOf(prices: TokenPrices, promptTokens: number, answerTokens: number): bigint {
  return prices.input * BigInt(promptTokens) + prices.output * BigInt(answerTokens);
}

/** Adds up amounts. */
export function sum(amounts: Iterable<bigint>): bigint {
  let total = 0n;
  for (const amount of amounts) total += amount;
  return total;
}

/** Returns an amount, or 0 if it is negative. */
export function atLeastZero(amount: bigint): bigint {
  return amount > 0n ? amount : 0n;
}
