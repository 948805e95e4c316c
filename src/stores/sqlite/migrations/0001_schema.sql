-- Organizations, their tokens, the books, and what operators do. Times are milliseconds since 1970, amounts micro-credits,
-- unit prices pico-credits a token; JSON is text. Every key of the books begins with the organization, so that the rows of
-- one organization lie together. The columns of the books are declared in src/stores/schema.ts.

CREATE TABLE organization (
  id                  TEXT NOT NULL PRIMARY KEY,
  name                TEXT NOT NULL,
  kind                TEXT NOT NULL CHECK (kind IN ('standard', 'playground')),
  status              TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'closed')),
  limits              TEXT,
  created_at          INTEGER NOT NULL,
  keeps_conversations INTEGER NOT NULL DEFAULT 0 CHECK (keeps_conversations IN (0, 1)),
  keeps_responses     INTEGER NOT NULL DEFAULT 1 CHECK (keeps_responses IN (0, 1)),
  pauses_allowances   INTEGER NOT NULL DEFAULT 0 CHECK (pauses_allowances = 0 OR pauses_allowances = 1 AND status <> 'active'),
  token_bounds        TEXT,
  models              TEXT,
  aliases             TEXT,
  price_list          TEXT,
  external_id         TEXT,
  contacts            TEXT,
  note                TEXT,
  erased_at           INTEGER
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX organization_external_id ON organization (external_id) WHERE external_id IS NOT NULL;
-- The order of lists.
CREATE INDEX organization_created_at ON organization (created_at, id);

-- `successor_id`: the token that a rotation made of this one. A token is rotated once. `caller_id`: the first token of the
-- rotations to this one.
CREATE TABLE token (
  organization_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  name            TEXT NOT NULL,
  hash            BLOB NOT NULL,
  prefix          TEXT NOT NULL,
  scopes          TEXT NOT NULL,
  models          TEXT,
  limits          TEXT,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER,
  revoked_at      INTEGER,
  last_used_at    INTEGER,
  successor_id    TEXT,
  caller_id       TEXT NOT NULL,
  kind            TEXT NOT NULL CHECK (kind IN ('secret', 'identity')),
  created_by      TEXT,
  rotated_by      TEXT,
  pinned          TEXT,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX token_id ON token (id);
CREATE UNIQUE INDEX token_hash ON token (hash);
CREATE INDEX token_created_at ON token (created_at, id);
CREATE INDEX token_created_by ON token (created_by) WHERE created_by IS NOT NULL;
CREATE INDEX token_rotated_by ON token (rotated_by) WHERE rotated_by IS NOT NULL;

-- Requests that began before `closed_before` are closed: nothing more is booked for them. Null: none. `budget_version` changes
-- with every change of a budget of the organization. `top_up`, `warn_at` and `announced`: see src/credits/warnings.ts.
CREATE TABLE balance (
  organization_id TEXT NOT NULL PRIMARY KEY,
  granted         INTEGER NOT NULL CHECK (granted >= 0),
  available       INTEGER NOT NULL CHECK (available >= 0),
  held            INTEGER NOT NULL CHECK (held >= 0),
  spent           INTEGER NOT NULL CHECK (spent >= 0),
  expired         INTEGER NOT NULL CHECK (expired >= 0),
  next_change_at  INTEGER,
  closed_before   INTEGER,
  budget_version  INTEGER NOT NULL DEFAULT 0,
  top_up          INTEGER NOT NULL DEFAULT 0 CHECK (top_up >= 0),
  warn_at         TEXT,
  announced       INTEGER CHECK (announced >= 0),
  CHECK (granted = available + held + spent + expired)
) STRICT, WITHOUT ROWID;

-- Found by the sweeper: grants that are due take effect or expire.
CREATE INDEX balance_next_change_at ON balance (next_change_at) WHERE next_change_at IS NOT NULL;

-- `cap_of`: the caller, by the first token of its rotations, whose spending cap it is. `limits`: of requests and tokens per minute.
-- Without an `amount` it counts nothing.
CREATE TABLE budget (
  organization_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  name            TEXT NOT NULL,
  caller_ids      TEXT,
  models          TEXT,
  metadata        TEXT,
  each            TEXT,
  time_window     TEXT NOT NULL CHECK (time_window IN ('day', 'week', 'month', 'lifetime')),
  amount          INTEGER CHECK (amount >= 0),
  limits          TEXT,
  cap_of          TEXT,
  created_at      INTEGER NOT NULL,
  PRIMARY KEY (organization_id, id),
  CHECK (amount IS NOT NULL OR limits IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX budget_cap_of ON budget (organization_id, cap_of) WHERE cap_of IS NOT NULL;

-- Found with each token that is read: the limits of its organization's budgets.
CREATE INDEX budget_limits ON budget (organization_id) WHERE limits IS NOT NULL;

-- The counters of budgets, by window and value. No CHECK against the amount: a settlement is never refused. `opening`: what of
-- `spent` no open request recorded.
CREATE TABLE budget_use (
  organization_id TEXT NOT NULL,
  budget_id       TEXT NOT NULL,
  window_at       INTEGER NOT NULL,
  value           TEXT NOT NULL,
  held            INTEGER NOT NULL CHECK (held >= 0),
  spent           INTEGER NOT NULL CHECK (spent >= 0),
  opening         INTEGER NOT NULL CHECK (opening >= 0),
  raised          INTEGER NOT NULL CHECK (raised >= 0),
  warned_limit    INTEGER NOT NULL DEFAULT 0 CHECK (warned_limit >= 0),
  warned_percent  INTEGER NOT NULL DEFAULT 0 CHECK (warned_percent IN (0, 80, 100)),
  PRIMARY KEY (organization_id, budget_id, window_at, value)
) STRICT, WITHOUT ROWID;

-- Requests of a caller in the minute from `began_at` on that had a value which a budget had not counted in its window.
CREATE TABLE new_values (
  organization_id TEXT NOT NULL,
  caller_id       TEXT NOT NULL,
  began_at        INTEGER NOT NULL,
  requests        INTEGER NOT NULL CHECK (requests >= 0),
  PRIMARY KEY (organization_id, caller_id)
) STRICT, WITHOUT ROWID;

-- A credit returns what was spent: it is not counted as granted a second time.
CREATE TABLE credit_grant (
  organization_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  source          TEXT NOT NULL CHECK (source IN ('grant', 'credit')),
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  revoked         INTEGER NOT NULL CHECK (revoked >= 0 AND revoked <= amount),
  remaining       INTEGER NOT NULL CHECK (remaining >= 0),
  is_used_up      INTEGER NOT NULL,
  state           TEXT NOT NULL CHECK (state = 'pending' OR state = 'active' OR state = 'expired'),
  effective_at    INTEGER NOT NULL,
  expires_at      INTEGER,
  priority        INTEGER NOT NULL,
  reference       TEXT,
  created_at      INTEGER NOT NULL,
  CHECK ((remaining = 0) = (is_used_up = 1)),
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX credit_grant_reference ON credit_grant (organization_id, reference) WHERE reference IS NOT NULL;
-- The grants that a batch reads: an old organization has many more that are used up. `is_used_up` changes rarely, so that
-- most updates of `remaining` touch no index.
CREATE INDEX credit_grant_live ON credit_grant (organization_id, id) WHERE state = 'pending' OR is_used_up = 0;
-- The order of the statement.
CREATE INDEX credit_grant_created_at ON credit_grant (organization_id, created_at, id);

-- Open holds only: as many rows as there are running requests.
CREATE TABLE hold (
  organization_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  token_id        TEXT NOT NULL,
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  draws           TEXT NOT NULL,
  budgets         TEXT,
  owner           TEXT NOT NULL,
  made_at         INTEGER NOT NULL,
  expires_at      INTEGER NOT NULL,
  details         TEXT NOT NULL,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

-- Every request that ended, once. Append-only. `charge`: its tokens and their prices, see src/credits/charge-lines.ts;
-- `input_tokens` and `output_tokens` are sums of them, for queries. `sequence`: the order in which they ended, so that the rows
-- of a batch share pages.
CREATE TABLE request (
  sequence            INTEGER PRIMARY KEY,
  organization_id     TEXT NOT NULL,
  id                  TEXT NOT NULL,
  token_id            TEXT NOT NULL,
  request_id          TEXT NOT NULL,
  model               TEXT NOT NULL,
  upstream            TEXT NOT NULL,
  charge              TEXT NOT NULL,
  input_tokens        INTEGER NOT NULL,
  output_tokens       INTEGER NOT NULL,
  amount              INTEGER NOT NULL CHECK (amount >= 0),
  cost                INTEGER NOT NULL CHECK (cost >= 0),
  shortfall           INTEGER NOT NULL CHECK (shortfall >= 0),
  draws               TEXT NOT NULL,
  budgets             TEXT,
  basis               TEXT CHECK (
    basis = 'reported' OR basis = 'counted' OR basis = 'bounded' OR basis = 'estimated'
  ),
  ending              TEXT NOT NULL CHECK (
    ending = 'complete' OR ending = 'client_disconnected' OR ending = 'upstream_failed' OR ending = 'timed_out'
    OR ending = 'service_failed' OR ending = 'recovered' OR ending = 'released'
  ),
  made_at             INTEGER NOT NULL,
  ended_at            INTEGER NOT NULL,
  is_late             INTEGER NOT NULL CHECK (is_late IN (0, 1)),
  is_streamed         INTEGER CHECK (is_streamed IN (0, 1)),
  first_token_ms      INTEGER,
  attempts            TEXT,
  failure             TEXT,
  provider_response_id TEXT,
  provider_cost       INTEGER,
  idempotency_caller_id TEXT,
  idempotency_key     TEXT,
  metadata            TEXT,
  retry               TEXT,
  UNIQUE (organization_id, id)
) STRICT;

-- The order of the statement. Requests that were booked more than a day away from the time in their id have an index of
-- their own, so that a period is a range of ids.
CREATE INDEX request_ended_at ON request (organization_id, ended_at, id, cost) WHERE is_late = 0 AND ending <> 'released';
CREATE INDEX request_late ON request (organization_id, ended_at, id) WHERE is_late = 1 AND ending <> 'released';
-- An id from the invoice or the log of a provider leads to its request. A provider's ids are random: in their own order each
-- charge would write a page of its own. In blocks of 256 requests, a batch writes few pages, and the rare search visits all blocks.
CREATE INDEX request_provider_response_id ON request (sequence >> 8, provider_response_id)
  WHERE provider_response_id IS NOT NULL;

-- Requests that broke after a part of their answers, until a retry with the same fingerprint repeats them or they expire.
CREATE TABLE broken_attempt (
  organization_id TEXT NOT NULL,
  caller_id       TEXT NOT NULL,
  fingerprint     TEXT NOT NULL,
  hold_id         TEXT NOT NULL,
  expires_at      INTEGER NOT NULL,
  PRIMARY KEY (organization_id, caller_id, fingerprint, hold_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX broken_attempt_expires_at ON broken_attempt (expires_at);

-- A key belongs to a caller: to the first token of the rotations to the one that a request came with.
CREATE TABLE idempotency_key (
  organization_id TEXT NOT NULL,
  caller_id       TEXT NOT NULL,
  key             TEXT NOT NULL,
  fingerprint     TEXT NOT NULL,
  hold_id         TEXT NOT NULL,
  answer          TEXT,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER NOT NULL,
  PRIMARY KEY (organization_id, caller_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_key_expires_at ON idempotency_key (expires_at);

-- Append-only: revocations, credits, lapses and late settlements. `amount` and the columns from `input_tokens` on are signed
-- differences in a late settlement.
CREATE TABLE adjustment (
  organization_id     TEXT NOT NULL,
  id                  TEXT NOT NULL,
  kind                TEXT NOT NULL CHECK (kind IN ('revoke', 'credit', 'lapse', 'late_settlement')),
  amount              INTEGER NOT NULL CHECK (amount >= 0 OR kind = 'late_settlement'),
  draws               TEXT NOT NULL,
  budgets             TEXT,
  is_all              INTEGER NOT NULL CHECK (is_all IN (0, 1)),
  grant_id            TEXT,
  expires_at          INTEGER,
  hold_id             TEXT,
  token_id            TEXT,
  reference           TEXT,
  note                TEXT,
  made_at             INTEGER NOT NULL,
  input_tokens        INTEGER,
  output_tokens       INTEGER,
  shortfall           INTEGER,
  settlement          TEXT,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX adjustment_reference ON adjustment (organization_id, kind, reference) WHERE reference IS NOT NULL;
-- Refunds of a request are bounded by a sum.
CREATE INDEX adjustment_request ON adjustment (organization_id, hold_id) WHERE hold_id IS NOT NULL;
-- The order of the statement.
CREATE INDEX adjustment_made_at ON adjustment (organization_id, made_at, id);

-- What the entries of a statement before a time add up to, at some times, so that an opening balance adds up few entries.
CREATE TABLE statement_balance (
  organization_id TEXT NOT NULL,
  before_at       INTEGER NOT NULL,
  balance         INTEGER NOT NULL,
  PRIMARY KEY (organization_id, before_at)
) STRICT, WITHOUT ROWID;

-- SHA-256, in hexadecimal, of what was booked in a month that is over, and of the digest of the month before: see
-- src/stores/queries/month-digests.ts. Never changed, and kept when the rows are removed. `month`: its first millisecond, in UTC.
CREATE TABLE month_digest (
  organization_id TEXT NOT NULL,
  month           INTEGER NOT NULL,
  digest          TEXT NOT NULL,
  PRIMARY KEY (organization_id, month)
) STRICT, WITHOUT ROWID;

-- Monthly statements of organizations with bookings or a balance in the month. `number` has no gaps: it comes from
-- `statement_series`, whose row the transaction locks. Never changed, and kept when the rows of the month are removed.
CREATE TABLE monthly_statement (
  organization_id TEXT NOT NULL,
  month           INTEGER NOT NULL,
  number          INTEGER NOT NULL UNIQUE,
  number_prefix   TEXT NOT NULL,
  made_at         INTEGER NOT NULL,
  opening         INTEGER NOT NULL,
  grant_total     INTEGER NOT NULL,
  allowance_total INTEGER NOT NULL,
  charge_total    INTEGER NOT NULL,
  revoke_total    INTEGER NOT NULL,
  credit_total    INTEGER NOT NULL,
  lapse_total     INTEGER NOT NULL,
  digest          TEXT NOT NULL,
  is_final        INTEGER NOT NULL CHECK (is_final IN (0, 1)),
  details         TEXT NOT NULL,
  PRIMARY KEY (organization_id, month)
) STRICT, WITHOUT ROWID;

CREATE TABLE statement_series (
  id          INTEGER NOT NULL PRIMARY KEY,
  last_number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO statement_series (id, last_number) VALUES (1, 0);

-- What the closed requests of an organization add up to: those that began before `before_at` and were booked, with all their
-- adjustments, before it. Their rows are removed later; until then they count as absent. `price`: their tokens at their
-- prices.
CREATE TABLE closing (
  organization_id     TEXT NOT NULL PRIMARY KEY,
  before_at           INTEGER NOT NULL,
  requests            INTEGER NOT NULL,
  cost                INTEGER NOT NULL CHECK (cost >= 0),
  shortfall           INTEGER NOT NULL CHECK (shortfall >= 0),
  price               INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The cost of the closed requests by the token that made them, and by the grant that it was drawn from.
CREATE TABLE closing_part (
  organization_id TEXT NOT NULL,
  dimension       TEXT NOT NULL CHECK (dimension IN ('token', 'grant')),
  name            TEXT NOT NULL,
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  PRIMARY KEY (organization_id, dimension, name)
) STRICT, WITHOUT ROWID;

-- Payments by PaymentIntent, with the credits that they bought. Money is in the currency's smallest unit.
CREATE TABLE payment (
  organization_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  currency        TEXT NOT NULL,
  amount          INTEGER NOT NULL CHECK (amount > 0),
  refunded        INTEGER NOT NULL CHECK (refunded >= 0),
  disputed        INTEGER NOT NULL CHECK (disputed >= 0),
  credits         INTEGER NOT NULL CHECK (credits >= 0),
  granted         INTEGER NOT NULL CHECK (granted >= 0),
  grants          INTEGER NOT NULL CHECK (grants >= 0),
  revoked         INTEGER NOT NULL CHECK (revoked >= 0 AND revoked <= granted),
  covered         INTEGER NOT NULL CHECK (covered >= 0),
  covers          TEXT NOT NULL,
  returned        INTEGER NOT NULL CHECK (returned >= 0 AND returned <= credits),
  withheld        INTEGER NOT NULL CHECK (withheld >= 0),
  debt            INTEGER NOT NULL CHECK (debt >= 0),
  debt_covered    INTEGER NOT NULL CHECK (debt_covered >= 0 AND debt_covered <= debt),
  revision        INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  CHECK (credits + debt = granted - revoked + covered + returned + withheld),
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

-- A payment is booked once, for one organization.
CREATE UNIQUE INDEX payment_id ON payment (id);
-- Debts that the next payment covers.
CREATE INDEX payment_debt ON payment (organization_id, id) WHERE debt > debt_covered;
CREATE INDEX payment_created_at ON payment (organization_id, created_at, id);

-- Batches of vouchers. `expires_at`: when their codes expire; `credit_days`: after how many days the credits that they grant do.
CREATE TABLE voucher_batch (
  id            TEXT NOT NULL PRIMARY KEY,
  name          TEXT NOT NULL,
  count         INTEGER NOT NULL CHECK (count > 0),
  amount        INTEGER NOT NULL CHECK (amount > 0),
  priority      INTEGER NOT NULL,
  credit_days   INTEGER CHECK (credit_days > 0),
  expires_at    INTEGER,
  created_at    INTEGER NOT NULL,
  revoked_at    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX voucher_batch_created_at ON voucher_batch (created_at, id);

-- Vouchers, each with the organization that has redeemed it.
CREATE TABLE voucher (
  id              TEXT NOT NULL PRIMARY KEY,
  batch_id        TEXT NOT NULL,
  hash            BLOB NOT NULL,
  prefix          TEXT NOT NULL,
  is_revoked      INTEGER NOT NULL CHECK (is_revoked IN (0, 1)),
  organization_id TEXT,
  redeemed_at     INTEGER,
  CHECK ((organization_id IS NULL) = (redeemed_at IS NULL)),
  CHECK (is_revoked = 0 OR organization_id IS NULL)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX voucher_hash ON voucher (hash);
CREATE INDEX voucher_of_batch ON voucher (batch_id, id);
CREATE INDEX voucher_redeemed ON voucher (organization_id) WHERE organization_id IS NOT NULL;

-- Automatic top-ups of organizations. Money is in the currency's smallest unit.
CREATE TABLE top_up (
  organization_id TEXT NOT NULL PRIMARY KEY,
  status          TEXT NOT NULL CHECK (status IN ('on', 'paused', 'off')),
  reason          TEXT,
  threshold       INTEGER NOT NULL CHECK (threshold >= 0),
  price           INTEGER NOT NULL CHECK (price >= 0),
  monthly_maximum INTEGER NOT NULL CHECK (monthly_maximum >= 0),
  currency        TEXT NOT NULL,
  card            TEXT,
  set_at          INTEGER NOT NULL,
  next_at         INTEGER NOT NULL,
  revision        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX top_up_next_at ON top_up (next_at) WHERE status = 'on';

CREATE TABLE top_up_charge (
  organization_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  price           INTEGER NOT NULL CHECK (price >= 0),
  currency        TEXT NOT NULL,
  credits         INTEGER NOT NULL CHECK (credits >= 0),
  payment_id      TEXT,
  state           TEXT NOT NULL CHECK (state IN ('pending', 'paid', 'failed', 'unbooked')),
  created_at      INTEGER NOT NULL,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

-- One charge of an organization at a time.
CREATE UNIQUE INDEX top_up_charge_pending ON top_up_charge (organization_id) WHERE state = 'pending';
CREATE INDEX top_up_charge_created_at ON top_up_charge (organization_id, created_at);

-- A grant every month, from the anchor on. The next one begins at `next_at`.
CREATE TABLE allowance (
  organization_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  priority        INTEGER NOT NULL,
  lapses          INTEGER NOT NULL CHECK (lapses IN (0, 1)),
  reference       TEXT,
  anchor_at       INTEGER NOT NULL,
  next_at         INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  ended_at        INTEGER,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX allowance_next_at ON allowance (next_at) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX allowance_reference ON allowance (organization_id, reference) WHERE reference IS NOT NULL;

-- Secrets are kept as SHA-256.
CREATE TABLE operator (
  id         TEXT NOT NULL PRIMARY KEY,
  hash       BLOB NOT NULL,
  prefix     TEXT NOT NULL,
  name       TEXT NOT NULL,
  role       TEXT NOT NULL CHECK (role IN ('operator', 'auditor')),
  created_at INTEGER NOT NULL,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX operator_hash ON operator (hash);
CREATE UNIQUE INDEX operator_name ON operator (name) WHERE revoked_at IS NULL;

-- People and callers whom an issuer identifies. A blocked one has no access, and neither have the tokens that it
-- created.
CREATE TABLE identity (
  id         TEXT NOT NULL PRIMARY KEY,
  issuer     TEXT NOT NULL,
  subject    TEXT NOT NULL,
  name       TEXT,
  created_at INTEGER NOT NULL,
  blocked_at INTEGER
) STRICT, WITHOUT ROWID;

-- Public keys of issuers, as they were read last, for the time when an issuer cannot be reached. `asked_at` is when a node
-- tried last.
CREATE TABLE issuer_keys (
  issuer     TEXT NOT NULL PRIMARY KEY,
  keys       TEXT NOT NULL,
  fetched_at INTEGER NOT NULL,
  asked_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Sessions of operators (by their token), of members (by a token of an organization), and of people at identity providers.
CREATE TABLE admin_session (
  hash           BLOB NOT NULL PRIMARY KEY,
  operator_id    TEXT,
  token_id       TEXT,
  person         TEXT,
  created_at     INTEGER NOT NULL,
  seen_at        INTEGER NOT NULL,
  expires_at     INTEGER NOT NULL,
  CHECK ((operator_id IS NOT NULL) + (token_id IS NOT NULL) + (person IS NOT NULL) = 1)
) STRICT, WITHOUT ROWID;

-- Represents a token for a short time, with its rights and limits: given to a browser. Valid while its session lasts and the
-- operator behind it is not revoked.
CREATE TABLE short_token (
  hash           BLOB NOT NULL PRIMARY KEY,
  token_id       TEXT NOT NULL,
  expires_at     INTEGER NOT NULL,
  session_hash   BLOB,
  operator_id    TEXT
) STRICT, WITHOUT ROWID;

-- Ids are UUIDv7, so they come in the order of time.
CREATE TABLE audit_entry (
  id              TEXT NOT NULL PRIMARY KEY,
  made_at         INTEGER NOT NULL,
  actor_kind      TEXT NOT NULL CHECK (actor_kind IN ('operator', 'auditor', 'owner', 'developer', 'billing', 'member', 'command', 'service', 'anonymous')),
  actor_id        TEXT,
  actor_name      TEXT,
  address         TEXT,
  request_id      TEXT,
  action          TEXT NOT NULL,
  organization_id TEXT,
  subject_id      TEXT,
  before          TEXT,
  after           TEXT,
  written_rows    TEXT,
  checksum        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_entry_organization ON audit_entry (organization_id, id);
CREATE INDEX audit_entry_actor ON audit_entry (actor_id) WHERE actor_id IS NOT NULL;
CREATE INDEX audit_entry_identity ON audit_entry (subject_id) WHERE action IN ('identity.block', 'identity.unblock');
-- Only the newest failed sign-ins are kept.
CREATE INDEX audit_entry_failed_sign_in ON audit_entry (id) WHERE action = 'session.sign_in_failed';

-- Requests of administrators that carry an Idempotency-Key, with the answer to send again. The scope is the operator, or
-- the caller that a member's token identifies. No answer holds a secret.
CREATE TABLE admin_idempotency_key (
  scope       TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  state       TEXT NOT NULL CHECK (state IN ('running', 'answered', 'interrupted')),
  status      INTEGER,
  answer      TEXT,
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  CHECK ((state = 'answered') = (status IS NOT NULL AND answer IS NOT NULL)),
  PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX admin_idempotency_key_expires_at ON admin_idempotency_key (expires_at);

-- Warnings, written in the transaction that causes them. The key names the kind, the subject and the period of which an event
-- tells once. `is_routed`: its deliveries are written. The books do not depend on it.
CREATE TABLE event (
  event_key       TEXT NOT NULL PRIMARY KEY,
  kind            TEXT NOT NULL,
  organization_id TEXT,
  made_at         INTEGER NOT NULL,
  data            TEXT NOT NULL,
  is_routed       INTEGER NOT NULL DEFAULT 0 CHECK (is_routed IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE INDEX event_unrouted ON event (made_at) WHERE is_routed = 0;
CREATE INDEX event_made_at ON event (made_at);

-- Webhooks and mail addresses that receive events: of one organization, or all. `secrets` sign what is sent, so they are stored
-- as they are.
CREATE TABLE receiver (
  id              TEXT NOT NULL PRIMARY KEY,
  organization_id TEXT,
  name            TEXT NOT NULL,
  format          TEXT NOT NULL CHECK (format IN ('webhook', 'slack', 'mail')),
  target          TEXT NOT NULL,
  kinds           TEXT,
  secrets         TEXT NOT NULL,
  created_at      INTEGER NOT NULL,
  failing_since   INTEGER,
  disabled_at     INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE delivery (
  id              TEXT NOT NULL PRIMARY KEY,
  receiver_id     TEXT NOT NULL,
  event_key       TEXT NOT NULL,
  state           TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed')),
  attempt_count   INTEGER NOT NULL,
  next_at         INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  attempted_at    INTEGER,
  result          TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX delivery_waiting ON delivery (receiver_id, next_at) WHERE state = 'waiting';
CREATE INDEX delivery_created_at ON delivery (created_at, id);

-- Usage of a day, summed up once the day is over: of an organization, or of all ('*'), by model, by token, by organization,
-- or by the time to the first piece of the answer. The books do not depend on it.
CREATE TABLE usage_day (
  organization_id   TEXT NOT NULL,
  dimension         TEXT NOT NULL CHECK (dimension IN ('model', 'route', 'token', 'organization', 'first_token')),
  day               INTEGER NOT NULL,
  name              TEXT NOT NULL,
  requests          INTEGER NOT NULL,
  errors            INTEGER NOT NULL,
  charged           INTEGER NOT NULL,
  input_tokens      INTEGER NOT NULL,
  output_tokens     INTEGER NOT NULL,
  provider_cost     INTEGER NOT NULL,
  charged_with_cost INTEGER NOT NULL,
  PRIMARY KEY (organization_id, dimension, day, name)
) STRICT, WITHOUT ROWID;

-- Histograms of a day: counts by bucket, as JSON.
CREATE TABLE latency_day (
  day          INTEGER NOT NULL,
  model        TEXT NOT NULL,
  route        TEXT NOT NULL,
  first_tokens TEXT NOT NULL,
  durations    TEXT NOT NULL,
  PRIMARY KEY (day, model, route)
) STRICT, WITHOUT ROWID;

-- The days that are summed up.
CREATE TABLE usage_day_done (
  day     INTEGER NOT NULL PRIMARY KEY,
  done_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Prompts and answers of organizations that store them: JSON texts, for some days. The books do not depend on it.
CREATE TABLE conversation (
  organization_id TEXT NOT NULL,
  hold_id         TEXT NOT NULL,
  ended_at        INTEGER NOT NULL,
  is_truncated    INTEGER NOT NULL CHECK (is_truncated IN (0, 1)),
  request         TEXT NOT NULL,
  answer          TEXT,
  PRIMARY KEY (organization_id, hold_id)
) STRICT;

CREATE INDEX conversation_ended_at ON conversation (ended_at);

-- What requests of a caller can refer to: items of responses, and whole responses, for some hours. The books do not depend on
-- it.
CREATE TABLE response_item (
  organization_id TEXT NOT NULL,
  caller_id       TEXT NOT NULL,
  id              TEXT NOT NULL,
  answer_id       TEXT NOT NULL,
  kept_at         INTEGER NOT NULL,
  bytes           INTEGER NOT NULL,
  undelivered     TEXT,
  content         TEXT NOT NULL,
  PRIMARY KEY (organization_id, caller_id, id)
) STRICT;

-- With the organization, on which the time depends, so that no row is read that stays.
CREATE INDEX response_item_kept_at ON response_item (kept_at, organization_id);
CREATE INDEX response_item_undelivered ON response_item (organization_id, caller_id, undelivered) WHERE undelivered IS NOT NULL;

-- Requests of known organizations that were refused before credits were held for them, for seven days. The books do not
-- depend on it.
CREATE TABLE refusal (
  organization_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  token_id        TEXT NOT NULL,
  request_id      TEXT NOT NULL,
  endpoint        TEXT NOT NULL,
  model           TEXT,
  status          INTEGER NOT NULL,
  code            TEXT NOT NULL,
  message         TEXT NOT NULL,
  duration_ms     INTEGER NOT NULL,
  count           INTEGER NOT NULL CHECK (count > 0),
  PRIMARY KEY (organization_id, id)
) STRICT;

CREATE INDEX refusal_id ON refusal (id);

-- Number of refusals of a day by code, of an organization or of all ('*'). The books do not depend on it.
CREATE TABLE refusal_day (
  organization_id TEXT NOT NULL,
  day             INTEGER NOT NULL,
  code            TEXT NOT NULL,
  requests        INTEGER NOT NULL CHECK (requests >= 0),
  PRIMARY KEY (organization_id, day, code)
) STRICT, WITHOUT ROWID;

-- A number that every change of what a token may do replaces, for services that keep tokens in memory. It is random, so that
-- it never comes again, not even after a failover that loses changes. No row: no change yet. New rows of the tables below
-- change no token that a service can know, and short tokens are only removed after their expiry.
CREATE TABLE account_version (
  id      INTEGER NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT;

CREATE TRIGGER token_changed
  AFTER UPDATE OF organization_id, hash, scopes, models, limits, expires_at, revoked_at, pinned ON token
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER token_removed AFTER DELETE ON token
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER organization_changed
  AFTER UPDATE OF kind, status, limits, keeps_conversations, keeps_responses, models, aliases, price_list ON organization
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER organization_removed AFTER DELETE ON organization
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER admin_session_removed AFTER DELETE ON admin_session
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER identity_changed AFTER UPDATE OF blocked_at ON identity
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER operator_changed AFTER UPDATE OF revoked_at ON operator
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER budget_created AFTER INSERT ON budget WHEN NEW.limits IS NOT NULL
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER budget_changed AFTER UPDATE OF name, limits ON budget WHEN NEW.limits IS NOT NULL OR OLD.limits IS NOT NULL
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER budget_removed AFTER DELETE ON budget WHEN OLD.limits IS NOT NULL
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

INSERT INTO organization (id, name, kind, created_at)
VALUES ('org_playground', 'Playground', 'playground', CAST(unixepoch('subsec') * 1000 AS INTEGER));
INSERT INTO balance (organization_id, granted, available, held, spent, expired)
VALUES ('org_playground', 0, 0, 0, 0, 0);
