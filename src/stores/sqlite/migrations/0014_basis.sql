-- A charge may also be limited by the bounds of its hold, or estimated where the output was not visible. SQLite changes a
-- CHECK only with its table.
CREATE TABLE usage_event_new (
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
  basis               TEXT    NOT NULL CHECK (basis IN ('reported', 'counted', 'bounded', 'estimated')),
  ending              TEXT    NOT NULL
    CHECK (ending IN ('complete', 'client_left', 'upstream_failed', 'timed_out', 'recovered')),
  made_at             INTEGER NOT NULL,
  charged_at          INTEGER NOT NULL,
  PRIMARY KEY (organization_id, hold_id, sequence)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_event_new SELECT * FROM usage_event;
DROP TABLE usage_event;
ALTER TABLE usage_event_new RENAME TO usage_event;

-- The statement's order: a late settlement stands where it was booked.
CREATE INDEX usage_event_charged_at ON usage_event (organization_id, charged_at, hold_id, sequence);
