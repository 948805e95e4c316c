import type { PricesByClass, TokensByClass } from "../../api/types.ts";

const NAMES: Record<keyof TokensByClass, string> = {
  input: "Input",
  cached_input: "Cached input",
  cache_write: "Cache write",
  output: "Output",
  reasoning: "Reasoning",
};
const MILLION = 1_000_000;

/** What each class of tokens comes to; the charge is their sum, rounded up once at the sixth decimal. */
export function costLines(tokens: TokensByClass, prices: PricesByClass) {
  return (Object.keys(NAMES) as (keyof TokensByClass)[])
    .filter((name) => tokens[name] > 0)
    .map((name) => ({
      name: NAMES[name],
      count: tokens[name],
      price: prices[name],
      cost: (tokens[name] * prices[name]) / MILLION,
    }));
}
