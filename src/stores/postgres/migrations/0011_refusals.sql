-- Requests of known organizations that were refused before credits were held for them, for seven days. The books do not
-- rest on them.
CREATE TABLE refusal (
  organization_id text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  token_id        text COLLATE "C" NOT NULL,
  request_id      text COLLATE "C" NOT NULL,
  endpoint        text NOT NULL,
  model           text,
  status          bigint NOT NULL,
  code            text NOT NULL,
  message         text NOT NULL,
  duration_ms     bigint NOT NULL,
  count           bigint NOT NULL CHECK (count > 0),
  PRIMARY KEY (organization_id, id)
);

CREATE INDEX refusal_id ON refusal (id);
