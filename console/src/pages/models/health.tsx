import { Play } from "lucide-react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Model, ResumedRoute } from "../../api/types.ts";
import { countOf, formatDuration } from "../../format/numbers.ts";
import { formatClock } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Badge, Failure } from "../../ui/states.tsx";
import { useNow } from "../../ui/values.tsx";

export type Route = NonNullable<Model["routes"]>[number];
type Tone = "plain" | "good" | "warn" | "bad";

/** Summarizes the health of a route. */
export function healthOf({ health }: Route, nowMs: number): { tone: Tone; word: string } {
  if (health === null) return { tone: "plain", word: "Not called since the start" };
  if (health.state === "open") return { tone: "bad", word: "Disabled after failures" };
  if (health.state === "partly_open") return { tone: "warn", word: "Failing for some" };
  if (isPaused(health, nowMs)) return { tone: "warn", word: "Rate limited" };
  const { successes, failures } = health.recent;
  if (failures > 0 && failures >= successes) return { tone: "warn", word: "Failing" };
  return { tone: "good", word: "Healthy" };
}

function isPaused({ limited_until }: NonNullable<Route["health"]>, nowMs: number): boolean {
  return limited_until !== null && Date.parse(limited_until) > nowMs;
}

/** Returns true while the service keeps requests of some or all organizations from a route. */
export function isHeldBack({ health }: Route, nowMs: number): boolean {
  return health !== null && (health.state !== "closed" || isPaused(health, nowMs));
}

/** Describes the figures behind the health of a route. */
export function healthDetails({ health }: Route, nowMs: number): string {
  if (health === null) return "No requests since this node started.";
  const { recent, first_byte_ms, last_failure, failing_organizations, limited_until } = health;
  const parts = [
    `${countOf(recent.successes, "success", "successes")} and ${countOf(recent.failures, "failure")} in the last 5 minutes`,
  ];
  if (first_byte_ms !== null) parts.push(`first byte after ${formatDuration(first_byte_ms)}`);
  if (last_failure !== null) parts.push(`last failure: ${last_failure.failure.replaceAll("_", " ")}`);
  if (failing_organizations > 0) parts.push(`fails for ${countOf(failing_organizations, "organization")}`);
  if (isPaused(health, nowMs)) parts.push(`paused until ${formatClock(limited_until ?? "")}`);
  return parts.join(" · ");
}

const HOUR_MS = 3_600_000;

/** Returns true if a route has answered in the hour that has not ended, whose times are not listed yet. */
export function wasCalledThisHour(routes: readonly Route[], nowMs: number): boolean {
  const hourMs = nowMs - (nowMs % HOUR_MS);
  return routes.some(({ health }) => Date.parse(health?.last_success_at ?? "") >= hourMs);
}

export function RouteBadge({ route }: { route: Route }) {
  const { tone, word } = healthOf(route, useNow());
  return (
    <span title={route.route}>
      <Badge tone={tone}>{word}</Badge>
    </span>
  );
}

/** Button that has a route called again before its pause is over; nothing for those who may not. */
export function ResumeRoute({ route: { route } }: { route: Route }) {
  const { may } = useAccess();
  const resume = useAction(
    // Without an idempotency key: a route can be resumed again after its next pause.
    () => send<ResumedRoute>("POST", "/admin/v1/routes/resume", { route }),
    ["models", "audit"],
  );
  if (!may("upstreams:write")) return null;
  return (
    <>
      <Button
        icon={Play}
        aria-label={`Resume ${route}`}
        busy={resume.isPending}
        onClick={() => resume.mutate(undefined)}
      >
        Resume
      </Button>
      {resume.isError && <Failure error={resume.error} />}
    </>
  );
}
