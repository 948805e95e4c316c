import type { EventKind } from "../../../../src/api/admin/event-kinds.ts";
import type { Receiver } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";

export const FORMATS = [
  ["webhook", "Webhook, signed"],
  ["slack", "Slack, Mattermost or Rocket.Chat"],
  ["mail", "Mail"],
] as const satisfies readonly (readonly [Receiver["format"], string])[];

/** Labels of all kinds of events. */
const KINDS: Record<EventKind, string> = {
  "credits.low": "Credits low",
  "credits.shortfall": "Charge not covered by credits",
  "credits.requested": "Credits requested",
  "payment.withheld": "Credits of a payment withheld",
  "top_up.paused": "Automatic top-up paused",
  "top_up.limit_reached": "Maximum of automatic top-up reached",
  "budget.used": "Budget used",
  "credits.forecast": "Credits end soon",
  "usage.unusual": "Unusual spending",
  "token.expiring": "Token expires soon",
  "model.shutdown": "Model will be shut down",
  "price.change": "Price will change",
  "route.down": "Route down",
  "route.up": "Route up again",
  "ledger.dead_letter": "Charges could not be booked",
  "backup.failed": "Backup failed",
  "receiver.disabled": "Receiver disabled",
  "statement.ready": "Statement ready",
  "receiver.test": "Test event",
};
/** Kinds that a receiver of one organization never gets. */
const OF_SERVICE: ReadonlySet<string> = new Set(["route.down", "route.up", "ledger.dead_letter", "backup.failed"]);

/** Returns the label of a kind of events. */
export function kindLabel(kind: string): string {
  return KINDS[kind as EventKind] ?? kind;
}

/** Returns the kinds that a receiver can choose from, with their labels. A test event always arrives. */
export function kindChoices(isOfService: boolean): (readonly [kind: string, label: string])[] {
  return Object.entries(KINDS).filter(([kind]) => kind !== "receiver.test" && (isOfService || !OF_SERVICE.has(kind)));
}

/** Describes which events a receiver gets. */
export function kindsLabel(kinds: Receiver["kinds"]): string {
  if (kinds === null) return "All events";
  return kinds.length <= 3
    ? kinds.map(kindLabel).join(", ")
    : countOf(kinds.length, "kind of events", "kinds of events");
}
