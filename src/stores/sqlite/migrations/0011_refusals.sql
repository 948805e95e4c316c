-- Requests of known organizations that were refused before credits were held for them, for seven days. The books do not
-- rest on them.
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
