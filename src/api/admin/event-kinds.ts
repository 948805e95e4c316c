/** Signed JSON in the format of Standard Webhooks, a text for Slack, or mail. */
export const RECEIVER_FORMATS = ["webhook", "slack", "mail"] as const;
export const DELIVERY_STATES = ["waiting", "delivered", "failed"] as const;
/** Number of amounts at which an organization is warned, in addition to shares of its last top-up. */
export const CREDIT_WARNINGS_MAX = 10;
/** The kinds of events. `docs/warnings.md` lists the fields of each. */
export const EVENT_KINDS = [
  "credits.low",
  "credits.shortfall",
  "credits.requested",
  "payment.withheld",
  "top_up.paused",
  "top_up.limit_reached",
  "budget.used",
  "credits.forecast",
  "usage.unusual",
  "token.expiring",
  "model.shutdown",
  "price.change",
  "route.down",
  "route.up",
  "ledger.dead_letter",
  "backup.failed",
  "receiver.disabled",
  "statement.ready",
  "receiver.test",
] as const;
export type EventKind = (typeof EVENT_KINDS)[number];
/** Kinds that the service is told once, in addition to the organizations that they concern. */
export const SERVICE_KINDS: ReadonlySet<EventKind> = new Set(["model.shutdown", "price.change"]);
