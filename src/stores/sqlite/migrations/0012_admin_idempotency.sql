-- Requests of administrators that carry an Idempotency-Key, with the answer to give again. The scope is 'operator' or the
-- id of a member's organization. No answer holds a secret.
CREATE TABLE admin_idempotency_key (
  scope       TEXT    NOT NULL,
  key         TEXT    NOT NULL,
  fingerprint TEXT    NOT NULL,
  state       TEXT    NOT NULL CHECK (state IN ('running', 'answered', 'interrupted')),
  status      INTEGER,
  answer      TEXT,
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  PRIMARY KEY (scope, key),
  CHECK ((state = 'answered') = (status IS NOT NULL AND answer IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX admin_idempotency_key_expires_at ON admin_idempotency_key (expires_at);
