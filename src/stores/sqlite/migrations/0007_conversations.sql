-- What was asked and answered, of organizations that have it kept: JSON texts, for some days. The books do not rest on it.
CREATE TABLE conversation (
  organization_id TEXT    NOT NULL,
  hold_id         TEXT    NOT NULL,
  ended_at        INTEGER NOT NULL,
  is_truncated    INTEGER NOT NULL CHECK (is_truncated IN (0, 1)),
  request         TEXT    NOT NULL,
  answer          TEXT,
  PRIMARY KEY (organization_id, hold_id)
) STRICT;

CREATE INDEX conversation_ended_at ON conversation (ended_at);

ALTER TABLE organization ADD COLUMN keeps_conversations INTEGER NOT NULL DEFAULT 0 CHECK (keeps_conversations IN (0, 1));
