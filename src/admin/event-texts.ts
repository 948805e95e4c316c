import type { EventKind } from "../api/admin/event-kinds.ts";
import type { EventRow } from "../credits/warnings.ts";

type Data = Record<string, unknown>;
const timeText = (time: unknown) => `${String(time).slice(0, "YYYY-MM-DDThh:mm".length).replace("T", " ")} UTC`;

/** Texts for people: in Slack, by mail and in lists of deliveries. */
const TEXTS: Record<EventKind, (data: Data) => string> = {
  // At 0 % a rest may be left that is too small for a request, as at 100 % of a budget.
  "credits.low": ({ credits_left, percent, threshold, last_top_up }) => {
    const state = credits_left === 0 ? "are used up" : "no longer cover a request";
    if (percent === 0) return `The credits ${state}: ${credits_left} of the last top-up of ${last_top_up} are left.`;
    const reached =
      percent === null ? `the threshold of ${threshold}` : `${percent} % of the last top-up of ${last_top_up}`;
    return `${credits_left} credits are left, which is not more than ${reached} credits.`;
  },
  "credits.shortfall": ({ shortfall }) => `${shortfall} credits of a charge were not covered.`,
  "credits.requested": ({ requested_by, amount, note }) =>
    `${requested_by} asks for ${amount} credits${note === null ? "." : `: ${note}`}`,
  "payment.withheld": ({ payment_id, credits }) =>
    `The organization is closed, so ${credits} credits of the payment ${payment_id} were not granted. Refund the price of these credits in Stripe.`,
  "top_up.paused": ({ reason }) =>
    `Automatic top-up is paused: ${String(reason).replaceAll("_", " ")}. Nothing is charged until it is set again or another card is saved.`,
  "top_up.limit_reached": ({ month, charged_this_month, monthly_maximum, currency }) =>
    `Automatic top-up has reached its monthly maximum: ${charged_this_month} of ${monthly_maximum} ${String(currency).toUpperCase()} are charged in ${month}.`,
  "budget.used": ({ name, value, percent, spent, limit, resets_at }) =>
    `The budget "${name}"${value === null ? "" : ` for ${value}`} ` +
    `${percent !== 100 ? `has reached ${percent} %` : Number(spent) < Number(limit) ? "no longer covers a request" : "is used up"}: ` +
    `${spent} of ${limit} credits are spent. ` +
    (resets_at === null ? "It does not reset." : `It resets at ${timeText(resets_at)}.`),
  "credits.forecast": ({ credits_left, days_left }) =>
    `The ${credits_left} credits that are left last ${days_left} days at the rate of the last 7 days.`,
  "usage.unusual": ({ spent, hour, usual }) =>
    `${spent} credits were spent in the hour from ${timeText(hour)}. The usual spending per hour is ${usual}.`,
  "token.expiring": ({ name, token_id, expires_at }) =>
    `The token "${name}" (${token_id}) expires at ${timeText(expires_at)}.`,
  "model.shutdown": ({ model, date, replacement }) =>
    `The provider shuts down the model ${model} on ${date}.${replacement === null ? "" : ` It names ${replacement} as its replacement.`}`,
  "price.change": ({ model, price_list: list = null, date, prices, new_prices }) =>
    `The prices of the model ${model}${list === null ? "" : ` in the price list ${list}`} change on ${date}, in credits per million tokens or per call: ${priceChanges(prices, new_prices)}.`,
  "route.down": ({ route }) => `The route ${route} is down: its calls fail for all organizations.`,
  "route.up": ({ route }) => `The route ${route} is up again.`,
  "ledger.dead_letter": ({ node, entries }) =>
    `Transitions that could not be booked on the node ${node}: ${entries}. To list them: tollgate ledger dead-letters list`,
  "backup.failed": ({ reason }) => `A backup failed: ${reason}`,
  "receiver.disabled": ({ name, last_result }) =>
    `The receiver "${name}" is disabled, because deliveries failed for 5 days. Last result: ${last_result}.`,
  "statement.ready": ({ statement_id, month }) =>
    `${statement_id === undefined ? "The statement" : `Statement ${statement_id}`} of ${month} is ready.`,
  "receiver.test": () => "This is a test event.",
};

/** Describes an event for people. `organization`: its name; null for an event of the service. */
export function eventText({ kind, data }: EventRow, organization: string | null): string {
  return `${organization === null ? "" : `${organization}: `}${TEXTS[kind](data)}`;
}

/** Lists the prices that change. Those of longer prompts may change alone. */
function priceChanges(before: unknown, after: unknown): string {
  const old = before as Data;
  const changed = Object.entries(after as Data).filter(([name, price]) => name !== "tiers" && old[name] !== price);
  if (changed.length === 0) return "those of long prompts";
  return changed.map(([name, price]) => `${name.replaceAll("_", " ")} from ${old[name] ?? 0} to ${price}`).join(", ");
}
