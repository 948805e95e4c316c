import { toPico } from "../prices.ts";
import type { Wire } from "./intent.ts";
import { THINKERS, thinkerOf, translatedOf } from "./random-intent.ts";

/** Prices of the classes, in credits per million tokens. */
interface Prices {
  input: string;
  cachedInput: string;
  cacheWrite: string;
  output: string;
  reasoning: string;
}

/** Prices that reloads replace one by another. No two have a price in common. */
const VARIANTS: [Prices, ...Prices[]] = [
  { input: "0.370001", cachedInput: "0.0923", cacheWrite: "0.51", output: "2.19", reasoning: "3.000007" },
  { input: "1.1", cachedInput: "0.100003", cacheWrite: "1.37", output: "9.999999", reasoning: "7.7" },
  { input: "0.0501", cachedInput: "0.02", cacheWrite: "0.060009", output: "0.55", reasoning: "0.55001" },
];
export const VARIANT_COUNT = VARIANTS.length;
const NAMES = ["input", "cachedInput", "cacheWrite", "output", "reasoning"] as const;

const pricesOf = (variant: number) => VARIANTS[variant % VARIANT_COUNT] ?? VARIANTS[0];

/** Returns the prices that a charge must have booked, in pico-credits per token. */
export function bookedPrices(variant: number, wire: Wire): bigint[] {
  const prices = pricesOf(variant);
  return NAMES.map((name) => {
    if (wire === "embeddings" && name !== "input")
      return name === "output" || name === "reasoning" ? 0n : toPico(prices.input);
    return toPico(prices[name]);
  });
}

/** Returns the price of an embedding, by which a reload is noticed in the list of models. */
export function listedPrice(variant: number): string {
  return pricesOf(variant).input;
}

/** The part of the configuration that a reload changes. */
export function modelsAt(variant: number): object[] {
  const prices = pricesOf(variant);
  const model = (id: string, wire: Wire, fields: object) => ({
    ...{ id, price: prices, contextWindow: 1_000_000, maxOutputTokens: 100_000, ...fields },
    routes: [{ provider: wire, model: id }],
  });
  const wires = ["chat", "messages", "responses"] as const;
  return [
    ...wires.flatMap((wire) =>
      [wire, translatedOf(wire)].map((id) => model(id, wire, { capabilities: ["chat", "tools"] })),
    ),
    ...wires.flatMap((wire) =>
      Array.from({ length: THINKERS }, (_, index) =>
        model(thinkerOf(wire, index), wire, { capabilities: ["chat", "tools", "reasoning"] }),
      ),
    ),
    {
      ...{ id: "embeddings", price: { input: prices.input }, contextWindow: 100_000, dimensions: 3 },
      ...{ capabilities: ["embeddings"], routes: [{ provider: "embeddings", model: "embeddings" }] },
    },
  ];
}
