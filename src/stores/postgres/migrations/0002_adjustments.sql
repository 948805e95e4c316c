-- What went by hand or by the month, how a request went, and the way to keys that are past their time.

ALTER TABLE hold
  ADD COLUMN credited bigint NOT NULL DEFAULT 0 CHECK (credited >= 0),
  -- All null until the request has ended.
  ADD COLUMN is_streamed bigint CHECK (is_streamed IN (0, 1)),
  ADD COLUMN first_token_ms bigint,
  ADD COLUMN attempts text,
  ADD COLUMN failure text;

-- A credit gives back what was spent: it is not counted as granted a second time.
ALTER TABLE credit_grant
  ADD COLUMN source text COLLATE "C" NOT NULL DEFAULT 'grant' CHECK (source IN ('grant', 'credit')),
  ADD COLUMN revoked bigint NOT NULL DEFAULT 0 CHECK (revoked >= 0 AND revoked <= amount);

CREATE INDEX idempotency_key_expires_at ON idempotency_key (expires_at);

-- Append-only: revocations, and credits for what was spent.
CREATE TABLE adjustment (
  organization_id text   COLLATE "C" NOT NULL,
  id              text   COLLATE "C" NOT NULL,
  kind            text   COLLATE "C" NOT NULL CHECK (kind IN ('revoke', 'credit')),
  amount          bigint NOT NULL CHECK (amount >= 0),
  draws           text   NOT NULL,
  hold_id         text   COLLATE "C",
  token_id        text   COLLATE "C",
  reference       text   COLLATE "C",
  note            text,
  made_at         bigint NOT NULL,
  PRIMARY KEY (organization_id, id)
);

CREATE UNIQUE INDEX adjustment_reference ON adjustment (organization_id, kind, reference) WHERE reference IS NOT NULL;

-- A grant a month, from the anchor on. `next_at` is where the next one begins.
CREATE TABLE allowance (
  organization_id text   COLLATE "C" NOT NULL,
  id              text   COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount >= 0),
  priority        bigint NOT NULL,
  lapses          bigint NOT NULL CHECK (lapses IN (0, 1)),
  anchor_at       bigint NOT NULL,
  next_at         bigint NOT NULL,
  created_at      bigint NOT NULL,
  ended_at        bigint,
  PRIMARY KEY (organization_id, id)
);

CREATE INDEX allowance_next_at ON allowance (next_at) WHERE ended_at IS NULL;
