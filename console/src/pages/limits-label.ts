import type { Limits } from "../api/types.ts";
import { countOf } from "../format/numbers.ts";

/** The limits in the order in which they are shown, with their units. */
export const LIMITS: { name: keyof Limits; label: string; one: string; many: string }[] = [
  { name: "requests_per_minute", label: "Requests per minute", one: "request per minute", many: "requests per minute" },
  { name: "tokens_per_minute", label: "Tokens per minute", one: "token per minute", many: "tokens per minute" },
  { name: "concurrent_requests", label: "Concurrent requests", one: "concurrent request", many: "concurrent requests" },
];

/** Describes limits in a line. */
export function limitsLabel(limits: Limits | null): string {
  const words = LIMITS.flatMap(({ name, one, many }) => {
    const value = limits?.[name];
    return value === undefined ? [] : [countOf(value, one, many)];
  });
  return words.length === 0 ? "Default" : words.join(", ");
}
