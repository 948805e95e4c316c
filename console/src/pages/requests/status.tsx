import type { RequestSummary } from "../../api/types.ts";
import { Badge } from "../../ui/states.tsx";

type Status = RequestSummary["status"];

const TONES = {
  running: "accent",
  complete: "good",
  client_disconnected: "warn",
  failed: "bad",
  recovered: "warn",
  refused: "bad",
} as const satisfies Record<Status, string>;

export const STATUS_LABELS: Record<Status, string> = {
  running: "Running",
  complete: "Completed",
  client_disconnected: "Client disconnected",
  failed: "Failed",
  recovered: "Recovered after a crash",
  refused: "Refused",
};

/** Explains each status and its effect on the charge. */
export const STATUS_DESCRIPTIONS: Record<Status, string> = {
  running: "In progress. The maximum cost is held.",
  complete: "Completed and charged.",
  client_disconnected: "The client disconnected. Output generated until then was charged.",
  failed: "The answer could not be completed.",
  recovered: "The service stopped before the charge. Output known to have been delivered was charged at the restart.",
  refused: "Answered with an error. Nothing was held or charged.",
};

export function StatusBadge({ status }: { status: Status }) {
  return <Badge tone={TONES[status]}>{STATUS_LABELS[status]}</Badge>;
}
