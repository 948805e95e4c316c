const named = (names: string, reason: string) => Object.fromEntries(names.split(" ").map((name) => [name, reason]));

const ONLY_HERE = "Nothing else in the store says it.";
const NO_BOOKS = "The books do not depend on this table; its rows are short-lived, or describe and secure access.";
const WARNINGS = "It only says which warnings were written. No credits depend on it.";
const UNUSED = "A class of which the request has no token may have any price.";
const TRACE = "It describes how the request ran. The charge does not depend on it.";
const CLOSED = "The requests that it adds up are closed and may be removed. Only their cost is compared.";

/** Columns of which some change cannot be found, each with the reason. */
export const UNSEEN: Record<string, Record<string, string>> = {
  top_up: named("next_at revision", "They only order what is tried next. No credits depend on them."),
  top_up_charge: named(
    "payment_id",
    "Only Stripe knows that of a charge which is not paid. That of a paid one is found.",
  ),
  monthly_statement: named(
    "details is_final number_prefix",
    "Names, the letterhead and the end of an organization are those of the time when it was made. Its figures are found.",
  ),
  token: {
    hash: "The token itself, from which it is computed, is not stored.",
    last_used_at: "A token may have been used without a request.",
  },
  voucher: {
    hash: "The code, from which it is computed, is not stored.",
    id: "Nothing refers to a voucher that is not redeemed.",
    prefix: ONLY_HERE,
  },
  operator: named("created_at hash id name prefix revoked_at role", NO_BOOKS),
  identity: named("blocked_at created_at id issuer name subject", NO_BOOKS),
  issuer_keys: named("asked_at fetched_at issuer keys", NO_BOOKS),
  admin_session: named("created_at expires_at hash operator_id seen_at token_id", NO_BOOKS),
  short_token: named("expires_at hash operator_id session_hash token_id", NO_BOOKS),
  admin_idempotency_key: named("answer created_at expires_at fingerprint key scope state status", NO_BOOKS),
  balance: {
    budget_version: "It only has to change when a budget does. It is found if it is 0.",
    closed_before: "Requests are frozen before they are closed. A time in the future is found.",
    ...named("announced top_up", WARNINGS),
  },
  budget_use: named("warned_limit warned_percent", WARNINGS),
  new_values: named("began_at caller_id requests", "It bounds what callers may begin. No credits depend on it."),
  hold: {
    details:
      "Names, prices and counts of a running request are stored nowhere else. They decide a charge at a checkpoint.",
    owner: "A process that has ended leaves no other trace of its id.",
  },
  idempotency_key: {
    answer: "The charge does not depend on it.",
    fingerprint: "The body, from which it is computed, is not stored.",
  },
  broken_attempt: named(
    "caller_id expires_at fingerprint hold_id",
    "It offers a request to a retry for two minutes. What is credited follows from the request.",
  ),
  request: {
    ...named("amount ending id metadata model request_id upstream", ONLY_HERE),
    basis: "Except for a bounded one, nothing shows how tokens were counted.",
    charge: UNUSED,
    ...named("attempts failure first_token_ms is_streamed provider_cost provider_response_id", TRACE),
  },
  adjustment: {
    id: "Nothing refers to a lapse.",
    settlement: TRACE,
  },
  closing: { requests: CLOSED },
  conversation: named("answer ended_at hold_id is_truncated request", NO_BOOKS),
  response_item: named("answer_id bytes caller_id content id kept_at undelivered", NO_BOOKS),
  refusal: named("code count duration_ms endpoint id message model request_id status token_id", NO_BOOKS),
  latency_day: named("day durations first_tokens model route", NO_BOOKS),
  refusal_day: named("code day requests", NO_BOOKS),
  event: named("data event_key is_routed kind made_at", NO_BOOKS),
  receiver: named("created_at disabled_at failing_since format id kinds name secrets target", NO_BOOKS),
  delivery: named("attempt_count attempted_at created_at event_key id next_at receiver_id result state", NO_BOOKS),
  account_version: named("id version", "A random number."),
};
