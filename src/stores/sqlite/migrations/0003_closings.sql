-- Requests that began before `closed_before` are closed: nothing more is booked for them. Null: none.
ALTER TABLE balance ADD COLUMN closed_before INTEGER;

-- What the closed requests of an organization add up to: those that began before `before_at` and were booked, with all their
-- adjustments, before it. Their rows are removed later; until then they count as absent. `price`: their tokens at their
-- prices.
CREATE TABLE closing (
  organization_id     TEXT NOT NULL PRIMARY KEY,
  before_at           INTEGER NOT NULL,
  requests            INTEGER NOT NULL,
  cost                INTEGER NOT NULL CHECK (cost >= 0),
  shortfall           INTEGER NOT NULL CHECK (shortfall >= 0),
  price               INTEGER NOT NULL,
  input_tokens        INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  cache_write_tokens  INTEGER NOT NULL,
  output_tokens       INTEGER NOT NULL,
  reasoning_tokens    INTEGER NOT NULL,
  further_tokens      TEXT
) STRICT, WITHOUT ROWID;

-- The cost of the closed requests by the token that made them, and by the grant that it was drawn from.
CREATE TABLE closing_part (
  organization_id TEXT NOT NULL,
  dimension       TEXT NOT NULL CHECK (dimension IN ('token', 'grant')),
  name            TEXT NOT NULL,
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  PRIMARY KEY (organization_id, dimension, name)
) STRICT, WITHOUT ROWID;
