import type { Model } from "../../api/types.ts";
import { countOf, formatDuration } from "../../format/numbers.ts";
import { Badge } from "../../ui/states.tsx";
import { useNow } from "../../ui/values.tsx";

export type Route = NonNullable<Model["routes"]>[number];
type Tone = "plain" | "good" | "warn" | "bad";

/** Summarizes the health of a route. */
export function healthOf({ health }: Route, nowMs: number): { tone: Tone; word: string } {
  if (health === null) return { tone: "plain", word: "No traffic" };
  if (health.state === "open") return { tone: "bad", word: "Disabled after failures" };
  if (health.state === "half_open") return { tone: "warn", word: "Recovering" };
  if (health.limited_until !== null && Date.parse(health.limited_until) > nowMs)
    return { tone: "warn", word: "Rate limited" };
  const { successes, failures } = health.recent;
  if (failures > 0 && failures >= successes) return { tone: "warn", word: "Failing" };
  return { tone: "good", word: "Healthy" };
}

/** Describes the figures behind the health of a route. */
export function healthDetails({ health }: Route): string {
  if (health === null) return "No requests since this node started.";
  const { recent, first_byte_ms, last_failure } = health;
  const parts = [
    `${countOf(recent.successes, "success", "successes")} and ${countOf(recent.failures, "failure")} in the last 5 minutes`,
  ];
  if (first_byte_ms !== null) parts.push(`first byte after ${formatDuration(first_byte_ms)}`);
  if (last_failure !== null) parts.push(`last failure: ${last_failure.failure.replaceAll("_", " ")}`);
  return parts.join(" · ");
}

export function RouteBadge({ route }: { route: Route }) {
  const { tone, word } = healthOf(route, useNow());
  return (
    <span title={route.route}>
      <Badge tone={tone}>{word}</Badge>
    </span>
  );
}
