-- Requests of administrators that carry an Idempotency-Key, with the answer to give again. The scope is 'operator' or the
-- id of a member's organization. No answer holds a secret.
CREATE TABLE admin_idempotency_key (
  scope       text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  fingerprint text COLLATE "C" NOT NULL,
  state       text COLLATE "C" NOT NULL CHECK (state IN ('running', 'answered', 'interrupted')),
  status      bigint,
  answer      text COLLATE "C",
  created_at  bigint NOT NULL,
  expires_at  bigint NOT NULL,
  PRIMARY KEY (scope, key),
  CHECK ((state = 'answered') = (status IS NOT NULL AND answer IS NOT NULL))
);

CREATE INDEX admin_idempotency_key_expires_at ON admin_idempotency_key (expires_at);
