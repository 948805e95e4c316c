import { ceilDivide, type MicroCredits, PICO_PER_MICRO, type PicoCredits } from "./amount.ts";
import type { UnitPrices } from "./price.ts";

/** A request that states no `max_tokens` is admitted when at least this much output can be paid for. */
export const OUTPUT_TOKENS_LEAST = 256;

/** What a request may use at the most, so far as is known before it runs. */
export interface HoldNeed {
  promptTokensMost: number;
  /** Output tokens without which the request is not worth admitting. */
  outputTokensLeast: number;
  outputTokensMost: number;
  prices: UnitPrices;
}

/** The least and the most that a hold for this need takes: input at its dearest class, and output at its dearest. */
export function holdBounds(need: HoldNeed): { least: MicroCredits; most: MicroCredits } {
  const input = inputPico(need);
  const output = outputPrice(need.prices);
  return {
    least: ceilDivide(input + BigInt(need.outputTokensLeast) * output, PICO_PER_MICRO),
    most: ceilDivide(input + BigInt(need.outputTokensMost) * output, PICO_PER_MICRO),
  };
}

/** Output tokens that an amount pays for after the input, at most those of the need; 0 where not even the input is paid. */
export function affordableOutputTokens(amount: MicroCredits, need: HoldNeed): number {
  const left = amount * PICO_PER_MICRO - inputPico(need);
  if (left < 0n) return 0;
  const output = outputPrice(need.prices);
  if (output === 0n) return need.outputTokensMost;
  const tokens = left / output;
  return tokens > BigInt(need.outputTokensMost) ? need.outputTokensMost : Number(tokens);
}

function inputPico({ promptTokensMost, prices }: HoldNeed): PicoCredits {
  return BigInt(promptTokensMost) * largest(prices.input, prices.cachedInput, prices.cacheWrite);
}

function outputPrice(prices: UnitPrices): PicoCredits {
  return largest(prices.output, prices.reasoning);
}

function largest(...values: bigint[]): bigint {
  return values.reduce((a, b) => (a > b ? a : b));
}
