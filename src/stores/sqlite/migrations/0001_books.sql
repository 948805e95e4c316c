-- Organizations, their tokens, and the books. Times are milliseconds since 1970, amounts micro-credits, unit prices
-- pico-credits a token; JSON is text. Every key begins with the organization, so that the rows of one lie together.

CREATE TABLE organization (
  id         TEXT    NOT NULL PRIMARY KEY,
  name       TEXT    NOT NULL,
  kind       TEXT    NOT NULL CHECK (kind IN ('standard', 'playground')),
  status     TEXT    NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended', 'closed')),
  limits     TEXT,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
  organization_id TEXT    NOT NULL,
  id              TEXT    NOT NULL,
  name            TEXT    NOT NULL,
  hash            BLOB    NOT NULL,
  prefix          TEXT    NOT NULL,
  scopes          TEXT    NOT NULL,
  models          TEXT,
  limits          TEXT,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER,
  revoked_at      INTEGER,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX token_id ON token (id);
CREATE UNIQUE INDEX token_hash ON token (hash);

CREATE TABLE balance (
  organization_id TEXT    NOT NULL PRIMARY KEY,
  granted         INTEGER NOT NULL CHECK (granted >= 0),
  available       INTEGER NOT NULL CHECK (available >= 0),
  held            INTEGER NOT NULL CHECK (held >= 0),
  spent           INTEGER NOT NULL CHECK (spent >= 0),
  expired         INTEGER NOT NULL CHECK (expired >= 0),
  next_change_at  INTEGER,
  CHECK (granted = available + held + spent + expired)
) STRICT, WITHOUT ROWID;

-- Only for tokens with a cap. No CHECK against the cap: a settlement is never refused.
CREATE TABLE token_balance (
  organization_id TEXT    NOT NULL,
  token_id        TEXT    NOT NULL,
  cap             INTEGER NOT NULL CHECK (cap >= 0),
  held            INTEGER NOT NULL CHECK (held >= 0),
  spent           INTEGER NOT NULL CHECK (spent >= 0),
  PRIMARY KEY (organization_id, token_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE credit_grant (
  organization_id TEXT    NOT NULL,
  id              TEXT    NOT NULL,
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  remaining       INTEGER NOT NULL CHECK (remaining >= 0),
  state           TEXT    NOT NULL CHECK (state IN ('pending', 'active', 'lapsed')),
  effective_at    INTEGER NOT NULL,
  expires_at      INTEGER,
  priority        INTEGER NOT NULL,
  reference       TEXT,
  created_at      INTEGER NOT NULL,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX credit_grant_reference ON credit_grant (organization_id, reference) WHERE reference IS NOT NULL;
-- The grants that a batch reads: an old organization has many more that are used up.
CREATE INDEX credit_grant_live ON credit_grant (organization_id, id) WHERE state = 'pending' OR remaining > 0;

CREATE TABLE hold (
  organization_id     TEXT    NOT NULL,
  id                  TEXT    NOT NULL,
  token_id            TEXT    NOT NULL,
  request_id          TEXT    NOT NULL,
  model               TEXT    NOT NULL,
  upstream            TEXT    NOT NULL,
  input_price         INTEGER NOT NULL,
  cached_input_price  INTEGER NOT NULL,
  cache_write_price   INTEGER NOT NULL,
  output_price        INTEGER NOT NULL,
  reasoning_price     INTEGER NOT NULL,
  metadata            TEXT,
  amount              INTEGER NOT NULL CHECK (amount >= 0),
  input_tokens        INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  cache_write_tokens  INTEGER NOT NULL,
  output_tokens       INTEGER NOT NULL,
  reasoning_tokens    INTEGER NOT NULL,
  idempotency_key     TEXT,
  made_at             INTEGER NOT NULL,
  expires_at          INTEGER NOT NULL,
  draws               TEXT    NOT NULL,
  state               TEXT    NOT NULL CHECK (state IN ('open', 'charged', 'released', 'expired')),
  charged             INTEGER NOT NULL CHECK (charged >= 0),
  shortfall           INTEGER NOT NULL CHECK (shortfall >= 0),
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

-- The sweeper's way in. Ids are UUIDv7, so the oldest open hold comes first.
CREATE INDEX hold_open ON hold (id) WHERE state = 'open';

CREATE TABLE usage_event (
  organization_id     TEXT    NOT NULL,
  hold_id             TEXT    NOT NULL,
  sequence            INTEGER NOT NULL CHECK (sequence IN (0, 1)),
  token_id            TEXT    NOT NULL,
  request_id          TEXT    NOT NULL,
  model               TEXT    NOT NULL,
  upstream            TEXT    NOT NULL,
  input_price         INTEGER NOT NULL,
  cached_input_price  INTEGER NOT NULL,
  cache_write_price   INTEGER NOT NULL,
  output_price        INTEGER NOT NULL,
  reasoning_price     INTEGER NOT NULL,
  metadata            TEXT,
  input_tokens        INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  cache_write_tokens  INTEGER NOT NULL,
  output_tokens       INTEGER NOT NULL,
  reasoning_tokens    INTEGER NOT NULL,
  cost                INTEGER NOT NULL,
  shortfall           INTEGER NOT NULL,
  basis               TEXT    NOT NULL CHECK (basis IN ('reported', 'counted')),
  ending              TEXT    NOT NULL
    CHECK (ending IN ('complete', 'client_left', 'upstream_failed', 'timed_out', 'recovered')),
  made_at             INTEGER NOT NULL,
  charged_at          INTEGER NOT NULL,
  PRIMARY KEY (organization_id, hold_id, sequence)
) STRICT, WITHOUT ROWID;

-- The statement's order: a late settlement stands where it was booked.
CREATE INDEX usage_event_charged_at ON usage_event (organization_id, charged_at, hold_id, sequence);

CREATE TABLE idempotency_key (
  organization_id TEXT    NOT NULL,
  key             TEXT    NOT NULL,
  fingerprint     TEXT    NOT NULL,
  hold_id         TEXT    NOT NULL,
  answer          TEXT,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER NOT NULL,
  PRIMARY KEY (organization_id, key)
) STRICT, WITHOUT ROWID;

-- Stands for the events of a day that were retired.
CREATE TABLE closing (
  organization_id TEXT    NOT NULL,
  charged_day     INTEGER NOT NULL,
  event_count     INTEGER NOT NULL CHECK (event_count >= 0),
  cost_sum        INTEGER NOT NULL,
  PRIMARY KEY (organization_id, charged_day)
) STRICT, WITHOUT ROWID;

INSERT INTO organization (id, name, kind, created_at)
VALUES ('org_playground', 'Playground', 'playground', CAST(unixepoch('subsec') * 1000 AS INTEGER));
INSERT INTO balance (organization_id, granted, available, held, spent, expired)
VALUES ('org_playground', 0, 0, 0, 0, 0);
