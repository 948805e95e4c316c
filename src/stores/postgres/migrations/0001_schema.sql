-- Organizations, their tokens, the books, and what operators do. Times are milliseconds since 1970, amounts micro-credits,
-- unit prices pico-credits a token; JSON is text. Every key of the books begins with the organization, so that the rows of
-- one organization lie together. The columns of the books are declared in src/stores/schema.ts.

CREATE TABLE organization (
  id                  text COLLATE "C" NOT NULL PRIMARY KEY,
  name                text NOT NULL,
  kind                text COLLATE "C" NOT NULL CHECK (kind IN ('standard', 'playground')),
  status              text COLLATE "C" NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'closed')),
  limits              text,
  created_at          bigint NOT NULL,
  keeps_conversations bigint NOT NULL DEFAULT 0 CHECK (keeps_conversations IN (0, 1)),
  keeps_responses     bigint NOT NULL DEFAULT 1 CHECK (keeps_responses IN (0, 1)),
  pauses_allowances   bigint NOT NULL DEFAULT 0 CHECK (pauses_allowances = 0 OR pauses_allowances = 1 AND status <> 'active'),
  token_bounds        text,
  models              text,
  aliases             text,
  price_list          text COLLATE "C",
  external_id         text COLLATE "C",
  contacts            text,
  note                text,
  erased_at           bigint
);

CREATE UNIQUE INDEX organization_external_id ON organization (external_id) WHERE external_id IS NOT NULL;
-- The order of lists.
CREATE INDEX organization_created_at ON organization (created_at, id);

-- `successor_id`: the token that a rotation made of this one. A token is rotated once. `caller_id`: the first token of the
-- rotations to this one.
CREATE TABLE token (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  name            text NOT NULL,
  hash            bytea NOT NULL,
  prefix          text NOT NULL,
  scopes          text NOT NULL,
  models          text,
  limits          text,
  created_at      bigint NOT NULL,
  expires_at      bigint,
  revoked_at      bigint,
  last_used_at    bigint,
  successor_id    text COLLATE "C",
  caller_id       text COLLATE "C" NOT NULL,
  kind            text NOT NULL CHECK (kind IN ('secret', 'identity')),
  created_by      text COLLATE "C",
  rotated_by      text COLLATE "C",
  pinned          text,
  PRIMARY KEY (organization_id, id)
);

CREATE UNIQUE INDEX token_id ON token (id);
CREATE UNIQUE INDEX token_hash ON token (hash);
CREATE INDEX token_created_at ON token (created_at, id);
CREATE INDEX token_created_by ON token (created_by) WHERE created_by IS NOT NULL;
CREATE INDEX token_rotated_by ON token (rotated_by) WHERE rotated_by IS NOT NULL;

-- Requests that began before `closed_before` are closed: nothing more is booked for them. Null: none. `budget_version` changes
-- with every change of a budget of the organization. `top_up`, `warn_at` and `announced`: see src/credits/warnings.ts.
CREATE TABLE balance (
  organization_id text COLLATE "C" NOT NULL PRIMARY KEY,
  granted         bigint NOT NULL CHECK (granted >= 0),
  available       bigint NOT NULL CHECK (available >= 0),
  held            bigint NOT NULL CHECK (held >= 0),
  spent           bigint NOT NULL CHECK (spent >= 0),
  expired         bigint NOT NULL CHECK (expired >= 0),
  next_change_at  bigint,
  closed_before   bigint,
  budget_version  bigint NOT NULL DEFAULT 0,
  top_up          bigint NOT NULL DEFAULT 0 CHECK (top_up >= 0),
  warn_at         text,
  announced       bigint CHECK (announced >= 0),
  CHECK (granted = available + held + spent + expired)
) WITH (fillfactor = 50);

-- Found by the sweeper: grants that are due take effect or expire.
CREATE INDEX balance_next_change_at ON balance (next_change_at) WHERE next_change_at IS NOT NULL;

-- `cap_of`: the caller, by the first token of its rotations, whose spending cap it is. `limits`: of requests and tokens per minute.
-- Without an `amount` it counts nothing.
CREATE TABLE budget (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  name            text NOT NULL,
  caller_ids      text,
  models          text,
  metadata        text,
  each            text,
  time_window     text COLLATE "C" NOT NULL CHECK (time_window IN ('day', 'week', 'month', 'lifetime')),
  amount          bigint CHECK (amount >= 0),
  limits          text,
  cap_of          text COLLATE "C",
  created_at      bigint NOT NULL,
  PRIMARY KEY (organization_id, id),
  CHECK (amount IS NOT NULL OR limits IS NOT NULL)
);

CREATE UNIQUE INDEX budget_cap_of ON budget (organization_id, cap_of) WHERE cap_of IS NOT NULL;

-- Found with each token that is read: the limits of its organization's budgets.
CREATE INDEX budget_limits ON budget (organization_id) WHERE limits IS NOT NULL;

-- The counters of budgets, by window and value. No CHECK against the amount: a settlement is never refused. `opening`: what of
-- `spent` no open request recorded.
CREATE TABLE budget_use (
  organization_id text COLLATE "C" NOT NULL,
  budget_id       text COLLATE "C" NOT NULL,
  window_at       bigint NOT NULL,
  value           text COLLATE "C" NOT NULL,
  held            bigint NOT NULL CHECK (held >= 0),
  spent           bigint NOT NULL CHECK (spent >= 0),
  opening         bigint NOT NULL CHECK (opening >= 0),
  raised          bigint NOT NULL CHECK (raised >= 0),
  warned_limit    bigint NOT NULL DEFAULT 0 CHECK (warned_limit >= 0),
  warned_percent  bigint NOT NULL DEFAULT 0 CHECK (warned_percent IN (0, 80, 100)),
  PRIMARY KEY (organization_id, budget_id, window_at, value)
) WITH (fillfactor = 50);

-- Requests of a caller in the minute from `began_at` on that had a value which a budget had not counted in its window.
CREATE TABLE new_values (
  organization_id text COLLATE "C" NOT NULL,
  caller_id       text COLLATE "C" NOT NULL,
  began_at        bigint NOT NULL,
  requests        bigint NOT NULL CHECK (requests >= 0),
  PRIMARY KEY (organization_id, caller_id)
) WITH (fillfactor = 50);

-- A credit returns what was spent: it is not counted as granted a second time.
CREATE TABLE credit_grant (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  source          text COLLATE "C" NOT NULL CHECK (source IN ('grant', 'credit')),
  amount          bigint NOT NULL CHECK (amount >= 0),
  revoked         bigint NOT NULL CHECK (revoked >= 0 AND revoked <= amount),
  remaining       bigint NOT NULL CHECK (remaining >= 0),
  is_used_up      bigint NOT NULL,
  state           text COLLATE "C" NOT NULL CHECK (state IN ('pending', 'active', 'expired')),
  effective_at    bigint NOT NULL,
  expires_at      bigint,
  priority        bigint NOT NULL,
  reference       text COLLATE "C",
  created_at      bigint NOT NULL,
  CHECK ((remaining = 0) = (is_used_up = 1)),
  PRIMARY KEY (organization_id, id)
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX credit_grant_reference ON credit_grant (organization_id, reference) WHERE reference IS NOT NULL;
-- The grants that a batch reads: an old organization has many more that are used up. `is_used_up` changes rarely, so that
-- most updates of `remaining` touch no index.
CREATE INDEX credit_grant_live ON credit_grant (organization_id, id) WHERE state = 'pending' OR is_used_up = 0;
-- The order of the statement.
CREATE INDEX credit_grant_created_at ON credit_grant (organization_id, created_at, id);

-- Open holds only: as many rows as there are running requests.
CREATE TABLE hold (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  token_id        text COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount >= 0),
  draws           text NOT NULL,
  budgets         text,
  owner           text COLLATE "C" NOT NULL,
  made_at         bigint NOT NULL,
  expires_at      bigint NOT NULL,
  details         text NOT NULL,
  PRIMARY KEY (organization_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX hold_expires_at ON hold (expires_at);

-- Every request that ended, once. Append-only. `charge`: its tokens and their prices, see src/credits/charge-lines.ts;
-- `input_tokens` and `output_tokens` are sums of them, for queries.
CREATE TABLE request (
  organization_id     text COLLATE "C" NOT NULL,
  id                  text COLLATE "C" NOT NULL,
  token_id            text COLLATE "C" NOT NULL,
  request_id          text COLLATE "C" NOT NULL,
  model               text NOT NULL,
  upstream            text NOT NULL,
  charge              text NOT NULL,
  input_tokens        bigint NOT NULL,
  output_tokens       bigint NOT NULL,
  amount              bigint NOT NULL CHECK (amount >= 0),
  cost                bigint NOT NULL CHECK (cost >= 0),
  shortfall           bigint NOT NULL CHECK (shortfall >= 0),
  draws               text NOT NULL,
  budgets             text,
  basis               text CHECK (basis IN ('reported', 'counted', 'bounded', 'estimated')),
  ending              text COLLATE "C" NOT NULL CHECK (
    ending IN ('complete', 'client_disconnected', 'upstream_failed', 'timed_out', 'service_failed', 'recovered', 'released')
  ),
  made_at             bigint NOT NULL,
  ended_at            bigint NOT NULL,
  is_late             bigint NOT NULL CHECK (is_late IN (0, 1)),
  is_streamed         bigint CHECK (is_streamed IN (0, 1)),
  first_token_ms      bigint,
  attempts            text,
  failure             text,
  provider_response_id text,
  provider_cost       bigint,
  idempotency_caller_id text COLLATE "C",
  idempotency_key     text COLLATE "C",
  metadata            text,
  retry               text,
  PRIMARY KEY (organization_id, id)
) PARTITION BY RANGE (id);

-- Takes ids of other months, and of no time at all.
CREATE TABLE request_default PARTITION OF request DEFAULT;
-- The order of the statement. Requests that were booked more than a day away from the time in their id have an index of
-- their own, so that a period is a range of ids.
CREATE INDEX request_ended_at ON request (organization_id, ended_at, id, cost) WHERE is_late = 0 AND ending <> 'released';
CREATE INDEX request_late ON request (organization_id, ended_at, id) WHERE is_late = 1 AND ending <> 'released';
-- An id from the invoice or the log of a provider leads to its request.
CREATE INDEX request_provider_response_id ON request (provider_response_id) WHERE provider_response_id IS NOT NULL;

-- Requests that broke after a part of their answers, until a retry with the same fingerprint repeats them or they expire.
CREATE TABLE broken_attempt (
  organization_id text COLLATE "C" NOT NULL,
  caller_id       text COLLATE "C" NOT NULL,
  fingerprint     text COLLATE "C" NOT NULL,
  hold_id         text COLLATE "C" NOT NULL,
  expires_at      bigint NOT NULL,
  PRIMARY KEY (organization_id, caller_id, fingerprint, hold_id)
);

CREATE INDEX broken_attempt_expires_at ON broken_attempt (expires_at);

-- A key belongs to a caller: to the first token of the rotations to the one that a request came with.
CREATE TABLE idempotency_key (
  organization_id text COLLATE "C" NOT NULL,
  caller_id       text COLLATE "C" NOT NULL,
  key             text COLLATE "C" NOT NULL,
  fingerprint     text COLLATE "C" NOT NULL,
  hold_id         text COLLATE "C" NOT NULL,
  answer          text COLLATE "C",
  created_at      bigint NOT NULL,
  expires_at      bigint NOT NULL,
  PRIMARY KEY (organization_id, caller_id, key)
);

CREATE INDEX idempotency_key_expires_at ON idempotency_key (expires_at);

-- Append-only: revocations, credits, lapses and late settlements. `amount` and the columns from `input_tokens` on are signed
-- differences in a late settlement.
CREATE TABLE adjustment (
  organization_id     text COLLATE "C" NOT NULL,
  id                  text COLLATE "C" NOT NULL,
  kind                text COLLATE "C" NOT NULL CHECK (kind IN ('revoke', 'credit', 'lapse', 'late_settlement')),
  amount              bigint NOT NULL CHECK (amount >= 0 OR kind = 'late_settlement'),
  draws               text NOT NULL,
  budgets             text,
  is_all              bigint NOT NULL CHECK (is_all IN (0, 1)),
  grant_id            text COLLATE "C",
  expires_at          bigint,
  hold_id             text COLLATE "C",
  token_id            text COLLATE "C",
  reference           text COLLATE "C",
  note                text,
  made_at             bigint NOT NULL,
  input_tokens        bigint,
  output_tokens       bigint,
  shortfall           bigint,
  settlement          text,
  PRIMARY KEY (organization_id, id)
);

CREATE UNIQUE INDEX adjustment_reference ON adjustment (organization_id, kind, reference) WHERE reference IS NOT NULL;
-- Refunds of a request are bounded by a sum.
CREATE INDEX adjustment_request ON adjustment (organization_id, hold_id) WHERE hold_id IS NOT NULL;
-- The order of the statement.
CREATE INDEX adjustment_made_at ON adjustment (organization_id, made_at, id);

-- What the entries of a statement before a time add up to, at some times, so that an opening balance adds up few entries.
CREATE TABLE statement_balance (
  organization_id text COLLATE "C" NOT NULL,
  before_at       bigint NOT NULL,
  balance         bigint NOT NULL,
  PRIMARY KEY (organization_id, before_at)
);

-- SHA-256, in hexadecimal, of what was booked in a month that is over, and of the digest of the month before: see
-- src/stores/queries/month-digests.ts. Never changed, and kept when the rows are removed. `month`: its first millisecond, in UTC.
CREATE TABLE month_digest (
  organization_id text COLLATE "C" NOT NULL,
  month           bigint NOT NULL,
  digest          text COLLATE "C" NOT NULL,
  PRIMARY KEY (organization_id, month)
);

-- Monthly statements of organizations with bookings or a balance in the month. `number` has no gaps: it comes from
-- `statement_series`, whose row the transaction locks. Never changed, and kept when the rows of the month are removed.
CREATE TABLE monthly_statement (
  organization_id text COLLATE "C" NOT NULL,
  month           bigint NOT NULL,
  number          bigint NOT NULL UNIQUE,
  number_prefix   text COLLATE "C" NOT NULL,
  made_at         bigint NOT NULL,
  opening         bigint NOT NULL,
  grant_total     bigint NOT NULL,
  allowance_total bigint NOT NULL,
  charge_total    bigint NOT NULL,
  revoke_total    bigint NOT NULL,
  credit_total    bigint NOT NULL,
  lapse_total     bigint NOT NULL,
  digest          text COLLATE "C" NOT NULL,
  is_final        bigint NOT NULL CHECK (is_final IN (0, 1)),
  details         text NOT NULL,
  PRIMARY KEY (organization_id, month)
);

CREATE TABLE statement_series (
  id          bigint NOT NULL PRIMARY KEY,
  last_number bigint NOT NULL
);

INSERT INTO statement_series (id, last_number) VALUES (1, 0);

-- What the closed requests of an organization add up to: those that began before `before_at` and were booked, with all their
-- adjustments, before it. Their rows are removed later; until then they count as absent. `price`: their tokens at their
-- prices.
CREATE TABLE closing (
  organization_id     text COLLATE "C" NOT NULL PRIMARY KEY,
  before_at           bigint NOT NULL,
  requests            bigint NOT NULL,
  cost                bigint NOT NULL CHECK (cost >= 0),
  shortfall           bigint NOT NULL CHECK (shortfall >= 0),
  price               bigint NOT NULL
);

-- The cost of the closed requests by the token that made them, and by the grant that it was drawn from.
CREATE TABLE closing_part (
  organization_id text COLLATE "C" NOT NULL,
  dimension       text COLLATE "C" NOT NULL CHECK (dimension IN ('token', 'grant')),
  name            text COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount >= 0),
  PRIMARY KEY (organization_id, dimension, name)
);

-- Payments by PaymentIntent, with the credits that they bought. Money is in the currency's smallest unit.
CREATE TABLE payment (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  currency        text COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount > 0),
  refunded        bigint NOT NULL CHECK (refunded >= 0),
  disputed        bigint NOT NULL CHECK (disputed >= 0),
  credits         bigint NOT NULL CHECK (credits >= 0),
  granted         bigint NOT NULL CHECK (granted >= 0),
  grants          bigint NOT NULL CHECK (grants >= 0),
  revoked         bigint NOT NULL CHECK (revoked >= 0 AND revoked <= granted),
  covered         bigint NOT NULL CHECK (covered >= 0),
  covers          text COLLATE "C" NOT NULL,
  returned        bigint NOT NULL CHECK (returned >= 0 AND returned <= credits),
  withheld        bigint NOT NULL CHECK (withheld >= 0),
  debt            bigint NOT NULL CHECK (debt >= 0),
  debt_covered    bigint NOT NULL CHECK (debt_covered >= 0 AND debt_covered <= debt),
  revision        bigint NOT NULL,
  created_at      bigint NOT NULL,
  CHECK (credits + debt = granted - revoked + covered + returned + withheld),
  PRIMARY KEY (organization_id, id)
);

-- A payment is booked once, for one organization.
CREATE UNIQUE INDEX payment_id ON payment (id);
-- Debts that the next payment covers.
CREATE INDEX payment_debt ON payment (organization_id, id) WHERE debt > debt_covered;
CREATE INDEX payment_created_at ON payment (organization_id, created_at, id);

-- Batches of vouchers. `expires_at`: when their codes expire; `credit_days`: after how many days the credits that they grant do.
CREATE TABLE voucher_batch (
  id            text COLLATE "C" NOT NULL PRIMARY KEY,
  name          text NOT NULL,
  count         bigint NOT NULL CHECK (count > 0),
  amount        bigint NOT NULL CHECK (amount > 0),
  priority      bigint NOT NULL,
  credit_days   bigint CHECK (credit_days > 0),
  expires_at    bigint,
  created_at    bigint NOT NULL,
  revoked_at    bigint
);

CREATE INDEX voucher_batch_created_at ON voucher_batch (created_at, id);

-- Vouchers, each with the organization that has redeemed it.
CREATE TABLE voucher (
  id              text COLLATE "C" NOT NULL PRIMARY KEY,
  batch_id        text COLLATE "C" NOT NULL,
  hash            bytea NOT NULL,
  prefix          text COLLATE "C" NOT NULL,
  is_revoked      bigint NOT NULL CHECK (is_revoked IN (0, 1)),
  organization_id text COLLATE "C",
  redeemed_at     bigint,
  CHECK ((organization_id IS NULL) = (redeemed_at IS NULL)),
  CHECK (is_revoked = 0 OR organization_id IS NULL)
);

CREATE UNIQUE INDEX voucher_hash ON voucher (hash);
CREATE INDEX voucher_of_batch ON voucher (batch_id, id);
CREATE INDEX voucher_redeemed ON voucher (organization_id) WHERE organization_id IS NOT NULL;

-- Automatic top-ups of organizations. Money is in the currency's smallest unit.
CREATE TABLE top_up (
  organization_id text COLLATE "C" NOT NULL PRIMARY KEY,
  status          text COLLATE "C" NOT NULL CHECK (status IN ('on', 'paused', 'off')),
  reason          text COLLATE "C",
  threshold       bigint NOT NULL CHECK (threshold >= 0),
  price           bigint NOT NULL CHECK (price >= 0),
  monthly_maximum bigint NOT NULL CHECK (monthly_maximum >= 0),
  currency        text COLLATE "C" NOT NULL,
  card            text COLLATE "C",
  set_at          bigint NOT NULL,
  next_at         bigint NOT NULL,
  revision        bigint NOT NULL
);

CREATE INDEX top_up_next_at ON top_up (next_at) WHERE status = 'on';

CREATE TABLE top_up_charge (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  price           bigint NOT NULL CHECK (price >= 0),
  currency        text COLLATE "C" NOT NULL,
  credits         bigint NOT NULL CHECK (credits >= 0),
  payment_id      text COLLATE "C",
  state           text COLLATE "C" NOT NULL CHECK (state IN ('pending', 'paid', 'failed', 'unbooked')),
  created_at      bigint NOT NULL,
  PRIMARY KEY (organization_id, id)
);

-- One charge of an organization at a time.
CREATE UNIQUE INDEX top_up_charge_pending ON top_up_charge (organization_id) WHERE state = 'pending';
CREATE INDEX top_up_charge_created_at ON top_up_charge (organization_id, created_at);

-- A grant every month, from the anchor on. The next one begins at `next_at`.
CREATE TABLE allowance (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount >= 0),
  priority        bigint NOT NULL,
  lapses          bigint NOT NULL CHECK (lapses IN (0, 1)),
  reference       text COLLATE "C",
  anchor_at       bigint NOT NULL,
  next_at         bigint NOT NULL,
  created_at      bigint NOT NULL,
  ended_at        bigint,
  PRIMARY KEY (organization_id, id)
);

CREATE INDEX allowance_next_at ON allowance (next_at) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX allowance_reference ON allowance (organization_id, reference) WHERE reference IS NOT NULL;

-- Secrets are kept as SHA-256.
CREATE TABLE operator (
  id         text COLLATE "C" NOT NULL PRIMARY KEY,
  hash       bytea NOT NULL,
  prefix     text NOT NULL,
  name       text NOT NULL,
  role       text NOT NULL CHECK (role IN ('operator', 'auditor')),
  created_at bigint NOT NULL,
  revoked_at bigint
);

CREATE UNIQUE INDEX operator_hash ON operator (hash);
CREATE UNIQUE INDEX operator_name ON operator (name) WHERE revoked_at IS NULL;

-- People and callers whom an issuer identifies. A blocked one has no access, and neither have the tokens that it
-- created.
CREATE TABLE identity (
  id         text COLLATE "C" NOT NULL PRIMARY KEY,
  issuer     text NOT NULL,
  subject    text NOT NULL,
  name       text,
  created_at bigint NOT NULL,
  blocked_at bigint
);

-- Public keys of issuers, as they were read last, for the time when an issuer cannot be reached. `asked_at` is when a node
-- tried last.
CREATE TABLE issuer_keys (
  issuer     text COLLATE "C" NOT NULL PRIMARY KEY,
  keys       text NOT NULL,
  fetched_at bigint NOT NULL,
  asked_at   bigint NOT NULL
);

-- Sessions of operators (by their token), of members (by a token of an organization), and of people at identity providers.
CREATE TABLE admin_session (
  hash           bytea NOT NULL PRIMARY KEY,
  operator_id    text COLLATE "C",
  token_id       text COLLATE "C",
  person         text,
  created_at     bigint NOT NULL,
  seen_at        bigint NOT NULL,
  expires_at     bigint NOT NULL,
  CHECK (num_nonnulls(operator_id, token_id, person) = 1)
);

-- Represents a token for a short time, with its rights and limits: given to a browser. Valid while its session lasts and the
-- operator behind it is not revoked.
CREATE TABLE short_token (
  hash           bytea NOT NULL PRIMARY KEY,
  token_id       text COLLATE "C" NOT NULL,
  expires_at     bigint NOT NULL,
  session_hash   bytea,
  operator_id    text COLLATE "C"
);

-- Ids are UUIDv7, so they come in the order of time.
CREATE TABLE audit_entry (
  id              text COLLATE "C" NOT NULL PRIMARY KEY,
  made_at         bigint NOT NULL,
  actor_kind      text NOT NULL CHECK (actor_kind IN ('operator', 'auditor', 'owner', 'developer', 'billing', 'member', 'command', 'service', 'anonymous')),
  actor_id        text,
  actor_name      text,
  address         text,
  request_id      text COLLATE "C",
  action          text COLLATE "C" NOT NULL,
  organization_id text COLLATE "C",
  subject_id      text,
  before          text,
  after           text,
  written_rows    text,
  checksum        bigint NOT NULL
);

CREATE INDEX audit_entry_organization ON audit_entry (organization_id, id);
CREATE INDEX audit_entry_actor ON audit_entry (actor_id) WHERE actor_id IS NOT NULL;
CREATE INDEX audit_entry_identity ON audit_entry (subject_id) WHERE action IN ('identity.block', 'identity.unblock');
-- Only the newest failed sign-ins are kept.
CREATE INDEX audit_entry_failed_sign_in ON audit_entry (id) WHERE action = 'session.sign_in_failed';

-- Requests of administrators that carry an Idempotency-Key, with the answer to send again. The scope is the operator, or
-- the caller that a member's token identifies. No answer holds a secret.
CREATE TABLE admin_idempotency_key (
  scope       text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  fingerprint text COLLATE "C" NOT NULL,
  state       text COLLATE "C" NOT NULL CHECK (state IN ('running', 'answered', 'interrupted')),
  status      bigint,
  answer      text COLLATE "C",
  created_at  bigint NOT NULL,
  expires_at  bigint NOT NULL,
  CHECK ((state = 'answered') = (status IS NOT NULL AND answer IS NOT NULL)),
  PRIMARY KEY (scope, key)
);

CREATE INDEX admin_idempotency_key_expires_at ON admin_idempotency_key (expires_at);

-- Warnings, written in the transaction that causes them. The key names the kind, the subject and the period of which an event
-- tells once. `is_routed`: its deliveries are written. The books do not depend on it.
CREATE TABLE event (
  event_key       text COLLATE "C" NOT NULL PRIMARY KEY,
  kind            text COLLATE "C" NOT NULL,
  organization_id text COLLATE "C",
  made_at         bigint NOT NULL,
  data            text NOT NULL,
  is_routed       bigint NOT NULL DEFAULT 0 CHECK (is_routed IN (0, 1))
);

CREATE INDEX event_unrouted ON event (made_at) WHERE is_routed = 0;
CREATE INDEX event_made_at ON event (made_at);

-- Webhooks and mail addresses that receive events: of one organization, or all. `secrets` sign what is sent, so they are stored
-- as they are.
CREATE TABLE receiver (
  id              text COLLATE "C" NOT NULL PRIMARY KEY,
  organization_id text COLLATE "C",
  name            text NOT NULL,
  format          text COLLATE "C" NOT NULL CHECK (format IN ('webhook', 'slack', 'mail')),
  target          text NOT NULL,
  kinds           text,
  secrets         text NOT NULL,
  created_at      bigint NOT NULL,
  failing_since   bigint,
  disabled_at     bigint
);

CREATE TABLE delivery (
  id              text COLLATE "C" NOT NULL PRIMARY KEY,
  receiver_id     text COLLATE "C" NOT NULL,
  event_key       text COLLATE "C" NOT NULL,
  state           text COLLATE "C" NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed')),
  attempt_count   bigint NOT NULL,
  next_at         bigint NOT NULL,
  created_at      bigint NOT NULL,
  attempted_at    bigint,
  result          text
);

CREATE INDEX delivery_waiting ON delivery (receiver_id, next_at) WHERE state = 'waiting';
CREATE INDEX delivery_created_at ON delivery (created_at, id);

-- Usage of a day, summed up once the day is over: of an organization, or of all ('*'), by model, by token, by organization,
-- or by the time to the first piece of the answer. The books do not depend on it.
CREATE TABLE usage_day (
  organization_id   text COLLATE "C" NOT NULL,
  dimension         text COLLATE "C" NOT NULL CHECK (dimension IN ('model', 'route', 'token', 'organization', 'first_token')),
  day               bigint NOT NULL,
  name              text COLLATE "C" NOT NULL,
  requests          bigint NOT NULL,
  errors            bigint NOT NULL,
  charged           bigint NOT NULL,
  input_tokens      bigint NOT NULL,
  output_tokens     bigint NOT NULL,
  provider_cost     bigint NOT NULL,
  charged_with_cost bigint NOT NULL,
  PRIMARY KEY (organization_id, dimension, day, name)
);

-- Histograms of a day: counts by bucket, as JSON.
CREATE TABLE latency_day (
  day          bigint NOT NULL,
  model        text COLLATE "C" NOT NULL,
  route        text COLLATE "C" NOT NULL,
  first_tokens text NOT NULL,
  durations    text NOT NULL,
  PRIMARY KEY (day, model, route)
);

-- The days that are summed up.
CREATE TABLE usage_day_done (
  day     bigint NOT NULL PRIMARY KEY,
  done_at bigint NOT NULL
);

-- Prompts and answers of organizations that store them: JSON texts, for some days. The books do not depend on it.
CREATE TABLE conversation (
  organization_id text COLLATE "C" NOT NULL,
  hold_id         text COLLATE "C" NOT NULL,
  ended_at        bigint NOT NULL,
  is_truncated    bigint NOT NULL CHECK (is_truncated IN (0, 1)),
  request         text NOT NULL,
  answer          text COLLATE "C",
  PRIMARY KEY (organization_id, hold_id)
);

CREATE INDEX conversation_ended_at ON conversation (ended_at);

-- What requests of a caller can refer to: items of responses, and whole responses, for some hours. The books do not depend on
-- it.
CREATE TABLE response_item (
  organization_id text COLLATE "C" NOT NULL,
  caller_id       text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  answer_id       text COLLATE "C" NOT NULL,
  kept_at         bigint NOT NULL,
  bytes           bigint NOT NULL,
  undelivered     text COLLATE "C",
  -- Not compressed: that would take longer than to write it, and the cores of all other transactions.
  content         text STORAGE EXTERNAL NOT NULL,
  PRIMARY KEY (organization_id, caller_id, id)
);

-- With the organization, on which the time depends, so that no row is read that stays.
CREATE INDEX response_item_kept_at ON response_item (kept_at, organization_id);
CREATE INDEX response_item_undelivered ON response_item (organization_id, caller_id, undelivered) WHERE undelivered IS NOT NULL;

-- Requests of known organizations that were refused before credits were held for them, for seven days. The books do not
-- depend on it.
CREATE TABLE refusal (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  token_id        text COLLATE "C" NOT NULL,
  request_id      text COLLATE "C" NOT NULL,
  endpoint        text NOT NULL,
  model           text,
  status          bigint NOT NULL,
  code            text NOT NULL,
  message         text NOT NULL,
  duration_ms     bigint NOT NULL,
  count           bigint NOT NULL CHECK (count > 0),
  PRIMARY KEY (organization_id, id)
);

CREATE INDEX refusal_id ON refusal (id);

-- Number of refusals of a day by code, of an organization or of all ('*'). The books do not depend on it.
CREATE TABLE refusal_day (
  organization_id text COLLATE "C" NOT NULL,
  day             bigint NOT NULL,
  code            text COLLATE "C" NOT NULL,
  requests        bigint NOT NULL CHECK (requests >= 0),
  PRIMARY KEY (organization_id, day, code)
);

-- A number that every change of what a token may do replaces, for services that keep tokens in memory. It is random, so that
-- it never comes again, not even after a failover that loses changes. No row: no change yet. New rows of the tables below
-- change no token that a service can know, and short tokens are only removed after their expiry.
CREATE TABLE account_version (
  id      bigint NOT NULL PRIMARY KEY,
  version bigint NOT NULL
);

CREATE FUNCTION replace_account_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, floor(random() * 9007199254740991))
  ON CONFLICT (id) DO UPDATE SET version = excluded.version;
  RETURN NULL;
END
$$;

CREATE TRIGGER token_changed
  AFTER DELETE OR UPDATE OF organization_id, hash, scopes, models, limits, expires_at, revoked_at, pinned ON token
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER organization_changed
  AFTER DELETE OR UPDATE OF kind, status, limits, keeps_conversations, keeps_responses, models, aliases, price_list ON organization
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER admin_session_removed AFTER DELETE ON admin_session
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER identity_changed AFTER UPDATE OF blocked_at ON identity
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER operator_changed AFTER UPDATE OF revoked_at ON operator
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER budget_created AFTER INSERT ON budget
  FOR EACH ROW WHEN (NEW.limits IS NOT NULL) EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER budget_changed AFTER UPDATE OF name, limits ON budget
  FOR EACH ROW WHEN (NEW.limits IS NOT NULL OR OLD.limits IS NOT NULL) EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER budget_removed AFTER DELETE ON budget
  FOR EACH ROW WHEN (OLD.limits IS NOT NULL) EXECUTE FUNCTION replace_account_version();

INSERT INTO organization (id, name, kind, created_at)
VALUES ('org_playground', 'Playground', 'playground', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
INSERT INTO balance (organization_id, granted, available, held, spent, expired)
VALUES ('org_playground', 0, 0, 0, 0, 0);
