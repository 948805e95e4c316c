-- Organizations, their tokens, and the books, under the names that the SQLite store uses too. Times are milliseconds
-- since 1970, amounts micro-credits, unit prices pico-credits a token; JSON is text. Every key begins with the
-- organization. Texts compare by their bytes. What is updated all the time leaves room on its pages.

CREATE TABLE organization (
  id         text   COLLATE "C" NOT NULL PRIMARY KEY,
  name       text   NOT NULL,
  kind       text   NOT NULL CHECK (kind IN ('standard', 'playground')),
  status     text   NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended', 'closed')),
  limits     text,
  created_at bigint NOT NULL
);

CREATE TABLE token (
  organization_id text   COLLATE "C" NOT NULL,
  id              text   COLLATE "C" NOT NULL,
  name            text   NOT NULL,
  hash            bytea  NOT NULL,
  prefix          text   NOT NULL,
  scopes          text   NOT NULL,
  models          text,
  limits          text,
  created_at      bigint NOT NULL,
  expires_at      bigint,
  revoked_at      bigint,
  PRIMARY KEY (organization_id, id)
);

CREATE UNIQUE INDEX token_id ON token (id);
CREATE UNIQUE INDEX token_hash ON token (hash);

CREATE TABLE balance (
  organization_id text   COLLATE "C" NOT NULL PRIMARY KEY,
  granted         bigint NOT NULL CHECK (granted >= 0),
  available       bigint NOT NULL CHECK (available >= 0),
  held            bigint NOT NULL CHECK (held >= 0),
  spent           bigint NOT NULL CHECK (spent >= 0),
  expired         bigint NOT NULL CHECK (expired >= 0),
  next_change_at  bigint,
  CHECK (granted = available + held + spent + expired)
) WITH (fillfactor = 50);

-- Only for tokens with a cap. No CHECK against the cap: a settlement is never refused.
CREATE TABLE token_balance (
  organization_id text   COLLATE "C" NOT NULL,
  token_id        text   COLLATE "C" NOT NULL,
  cap             bigint NOT NULL CHECK (cap >= 0),
  held            bigint NOT NULL CHECK (held >= 0),
  spent           bigint NOT NULL CHECK (spent >= 0),
  PRIMARY KEY (organization_id, token_id)
) WITH (fillfactor = 50);

CREATE TABLE credit_grant (
  organization_id text   COLLATE "C" NOT NULL,
  id              text   COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount >= 0),
  remaining       bigint NOT NULL CHECK (remaining >= 0),
  state           text   COLLATE "C" NOT NULL CHECK (state IN ('pending', 'active', 'lapsed')),
  effective_at    bigint NOT NULL,
  expires_at      bigint,
  priority        bigint NOT NULL,
  reference       text   COLLATE "C",
  created_at      bigint NOT NULL,
  PRIMARY KEY (organization_id, id)
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX credit_grant_reference ON credit_grant (organization_id, reference) WHERE reference IS NOT NULL;

-- No index on expiry or state: with one, no update of a hold could stay on its page.
CREATE TABLE hold (
  organization_id     text   COLLATE "C" NOT NULL,
  id                  text   COLLATE "C" NOT NULL,
  token_id            text   COLLATE "C" NOT NULL,
  request_id          text   NOT NULL,
  model               text   NOT NULL,
  upstream            text   NOT NULL,
  input_price         bigint NOT NULL,
  cached_input_price  bigint NOT NULL,
  cache_write_price   bigint NOT NULL,
  output_price        bigint NOT NULL,
  reasoning_price     bigint NOT NULL,
  metadata            text,
  amount              bigint NOT NULL CHECK (amount >= 0),
  input_tokens        bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_write_tokens  bigint NOT NULL,
  output_tokens       bigint NOT NULL,
  reasoning_tokens    bigint NOT NULL,
  idempotency_key     text   COLLATE "C",
  made_at             bigint NOT NULL,
  expires_at          bigint NOT NULL,
  draws               text   NOT NULL,
  state               text   COLLATE "C" NOT NULL CHECK (state IN ('open', 'charged', 'released', 'expired')),
  charged             bigint NOT NULL CHECK (charged >= 0),
  shortfall           bigint NOT NULL CHECK (shortfall >= 0),
  PRIMARY KEY (organization_id, id)
) WITH (fillfactor = 70);

-- The sweeper's way in. Ids are UUIDv7, so they come in the order of time.
CREATE INDEX hold_id ON hold (id);

-- By the store's day of the charge: a day that is retired is dropped, never deleted row by row.
CREATE TABLE usage_event (
  organization_id     text   COLLATE "C" NOT NULL,
  hold_id             text   COLLATE "C" NOT NULL,
  sequence            bigint NOT NULL CHECK (sequence IN (0, 1)),
  token_id            text   COLLATE "C" NOT NULL,
  request_id          text   NOT NULL,
  model               text   NOT NULL,
  upstream            text   NOT NULL,
  input_price         bigint NOT NULL,
  cached_input_price  bigint NOT NULL,
  cache_write_price   bigint NOT NULL,
  output_price        bigint NOT NULL,
  reasoning_price     bigint NOT NULL,
  metadata            text,
  input_tokens        bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_write_tokens  bigint NOT NULL,
  output_tokens       bigint NOT NULL,
  reasoning_tokens    bigint NOT NULL,
  cost                bigint NOT NULL,
  shortfall           bigint NOT NULL,
  basis               text   NOT NULL CHECK (basis IN ('reported', 'counted')),
  ending              text   NOT NULL
    CHECK (ending IN ('complete', 'client_left', 'upstream_failed', 'timed_out', 'recovered')),
  made_at             bigint NOT NULL,
  charged_at          bigint NOT NULL,
  PRIMARY KEY (organization_id, hold_id, sequence, charged_at)
) PARTITION BY RANGE (charged_at);

-- Takes what no day has been made for.
CREATE TABLE usage_event_default PARTITION OF usage_event DEFAULT;

-- The statement's order: a late settlement stands where it was booked.
CREATE INDEX usage_event_charged_at ON usage_event (organization_id, charged_at, hold_id, sequence);

CREATE TABLE idempotency_key (
  organization_id text   COLLATE "C" NOT NULL,
  key             text   COLLATE "C" NOT NULL,
  fingerprint     text   NOT NULL,
  hold_id         text   COLLATE "C" NOT NULL,
  answer          text,
  created_at      bigint NOT NULL,
  expires_at      bigint NOT NULL,
  PRIMARY KEY (organization_id, key)
);

-- Stands for the events of a day that were retired.
CREATE TABLE closing (
  organization_id text   COLLATE "C" NOT NULL,
  charged_day     bigint NOT NULL,
  event_count     bigint NOT NULL CHECK (event_count >= 0),
  cost_sum        bigint NOT NULL,
  PRIMARY KEY (organization_id, charged_day)
);

INSERT INTO organization (id, name, kind, created_at)
VALUES ('org_playground', 'Playground', 'playground', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
INSERT INTO balance (organization_id, granted, available, held, spent, expired)
VALUES ('org_playground', 0, 0, 0, 0, 0);
