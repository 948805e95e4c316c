-- What was asked and answered, of organizations that have it kept: JSON texts, for some days. The books do not rest on it.
CREATE TABLE conversation (
  organization_id text   COLLATE "C" NOT NULL,
  hold_id         text   COLLATE "C" NOT NULL,
  ended_at        bigint NOT NULL,
  is_truncated    bigint NOT NULL CHECK (is_truncated IN (0, 1)),
  request         text   NOT NULL,
  answer          text,
  PRIMARY KEY (organization_id, hold_id)
);

CREATE INDEX conversation_ended_at ON conversation (ended_at);

ALTER TABLE organization ADD COLUMN keeps_conversations bigint NOT NULL DEFAULT 0 CHECK (keeps_conversations IN (0, 1));
