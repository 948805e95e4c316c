-- What went by hand or by the month, how a request went, and the way to keys that are past their time.

ALTER TABLE hold ADD COLUMN credited INTEGER NOT NULL DEFAULT 0 CHECK (credited >= 0);
-- All null until the request has ended.
ALTER TABLE hold ADD COLUMN is_streamed INTEGER CHECK (is_streamed IN (0, 1));
ALTER TABLE hold ADD COLUMN first_token_ms INTEGER;
ALTER TABLE hold ADD COLUMN attempts TEXT;
ALTER TABLE hold ADD COLUMN failure TEXT;

-- A credit gives back what was spent: it is not counted as granted a second time.
ALTER TABLE credit_grant ADD COLUMN source TEXT NOT NULL DEFAULT 'grant' CHECK (source IN ('grant', 'credit'));
ALTER TABLE credit_grant ADD COLUMN revoked INTEGER NOT NULL DEFAULT 0 CHECK (revoked >= 0 AND revoked <= amount);

CREATE INDEX idempotency_key_expires_at ON idempotency_key (expires_at);

-- Append-only: revocations, and credits for what was spent.
CREATE TABLE adjustment (
  organization_id TEXT    NOT NULL,
  id              TEXT    NOT NULL,
  kind            TEXT    NOT NULL CHECK (kind IN ('revoke', 'credit')),
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  draws           TEXT    NOT NULL,
  hold_id         TEXT,
  token_id        TEXT,
  reference       TEXT,
  note            TEXT,
  made_at         INTEGER NOT NULL,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX adjustment_reference ON adjustment (organization_id, kind, reference) WHERE reference IS NOT NULL;

-- A grant a month, from the anchor on. `next_at` is where the next one begins.
CREATE TABLE allowance (
  organization_id TEXT    NOT NULL,
  id              TEXT    NOT NULL,
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  priority        INTEGER NOT NULL,
  lapses          INTEGER NOT NULL CHECK (lapses IN (0, 1)),
  anchor_at       INTEGER NOT NULL,
  next_at         INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  ended_at        INTEGER,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX allowance_next_at ON allowance (next_at) WHERE ended_at IS NULL;
