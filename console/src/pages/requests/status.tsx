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

const ADVICE: Record<string, string> = {
  insufficient_credits: "Grant the organization credits, or lower max_tokens, which lowers the amount that is held.",
  budget_exhausted: "Wait until the budget resets, or raise it.",
  rate_limit_exceeded: "Send fewer requests at a time, or raise the limits of the token or the organization.",
  organization_paused: "Resume the organization.",
  invalid_token: "Check that the application sends a token of this service that was not revoked.",
  expired_token: "Create a token, or change the expiry of this one.",
  insufficient_scope: "Give the token the scope that the message names.",
  model_not_found: "Check the model's ID on the models page. The token may be restricted to other models.",
  context_length_exceeded: "Shorten the conversation, or use a model with a longer context window.",
  model_not_allowed: "Use another model, or allow this one for the token.",
  max_cost_exceeded: "Raise the maximum cost that the request states, or lower max_tokens.",
  credits_held: "Wait for running requests, or grant the organization credits.",
  issuer_unavailable: "The service could not reach the identity provider. Send the request again later.",
  store_unavailable: "The service could not reach its database. Send the request again.",
  internal_error: "The service has logged this error under the request ID.",
  upstream_error: "The provider failed. Send the request again; the models page shows the health of its routes.",
  content_filter: "The provider refuses this content. Change the prompt, or use another model.",
  upstream_unavailable:
    "The provider did not answer. Send the request again; the models page shows the health of its routes.",
  upstream_timeout: "The provider took too long. Send the request again, or lower max_tokens.",
  upstream_rejected: "The provider refused the request. Its message says why.",
  overloaded: "The provider has too many requests. Send the request again later.",
};

/** Returns what to do about an error; null for a code without advice. */
export function adviceOf(code: string): string | null {
  return ADVICE[code] ?? null;
}

export function StatusBadge({ status }: { status: Status }) {
  return <Badge tone={TONES[status]}>{STATUS_LABELS[status]}</Badge>;
}
