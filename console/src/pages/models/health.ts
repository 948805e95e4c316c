import type { Model } from "../../api/types.ts";
import { countOf, formatDuration } from "../../format/numbers.ts";

export type Route = NonNullable<Model["routes"]>[number];
type Tone = "plain" | "good" | "warn" | "bad";

/** How a route is faring, in a word. */
export function healthOf({ health }: Route, nowMs: number): { tone: Tone; word: string } {
  if (health === null) return { tone: "plain", word: "not asked yet" };
  if (health.state === "open") return { tone: "bad", word: "not called" };
  if (health.state === "half_open") return { tone: "warn", word: "tried again" };
  if (health.limited_until !== null && Date.parse(health.limited_until) > nowMs)
    return { tone: "warn", word: "limited" };
  const { successes, failures } = health.recent;
  if (failures > 0 && failures >= successes) return { tone: "warn", word: "failing" };
  return { tone: "good", word: "healthy" };
}

/** What that stands on, in words. */
export function groundsOf({ health }: Route): string {
  if (health === null) return "Nothing was sent there since this node started.";
  const { recent, first_byte_ms, last_failure } = health;
  const parts = [
    `${countOf(recent.successes, "success", "successes")} and ${countOf(recent.failures, "failure")} in five minutes`,
  ];
  if (first_byte_ms !== null) parts.push(`an answer begins after ${formatDuration(first_byte_ms)}`);
  if (last_failure !== null) parts.push(`last failure: ${last_failure.failure.replaceAll("_", " ")}`);
  return parts.join(", ");
}
