import type { Tokens } from "./books.ts";

/** Prices of the metered model, in credits per million tokens, with digits that make most sums need rounding. */
export const PRICES = { input: "0.370001", cachedInput: "0.0923", output: "2.19" };

/** Computes the cost in micro-credits with integers. Credits per million tokens equal micro-credits per token. */
export function priceOf(tokens: Tokens): bigint {
  const { input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens } = tokens;
  const [input, cachedInput, output] = [PRICES.input, PRICES.cachedInput, PRICES.output].map(toPico) as [
    bigint,
    bigint,
    bigint,
  ];
  const pico =
    (input_tokens + cache_write_tokens) * input +
    cached_input_tokens * cachedInput +
    (output_tokens + reasoning_tokens) * output;
  return (pico + 999_999n) / 1_000_000n;
}

/** Converts a price in credits per million tokens to pico-credits per token. */
export function toPico(price: string): bigint {
  const [whole = "", fraction = ""] = price.split(".");
  return BigInt(whole + fraction.padEnd(6, "0"));
}
