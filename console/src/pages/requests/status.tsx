import type { RequestSummary } from "../../api/types.ts";
import { Badge } from "../../ui/states.tsx";

type Status = RequestSummary["status"];

const TONES = {
  running: "accent",
  complete: "good",
  client_left: "warn",
  failed: "bad",
  recovered: "warn",
} as const satisfies Record<Status, string>;

export const STATUS_WORDS: Record<Status, string> = {
  running: "Running",
  complete: "Complete",
  client_left: "Client left",
  failed: "Failed",
  recovered: "Recovered",
};

/** What each ending means for the charge. */
export const STATUS_MEANINGS: Record<Status, string> = {
  running: "It is being answered. What it may cost at most is held.",
  complete: "The answer went out whole, and was charged before its last byte.",
  client_left: "The client left before the end. It was charged for what had been produced until then.",
  failed: "It could not be answered to the end.",
  recovered:
    "The process that answered it ended before it was charged. It was charged for what is known to have gone out.",
};

export function StatusBadge({ status }: { status: Status }) {
  return <Badge tone={TONES[status]}>{STATUS_WORDS[status]}</Badge>;
}
