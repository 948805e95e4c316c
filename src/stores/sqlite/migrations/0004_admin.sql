-- Who may look after the service, and what they did. Secrets are kept as SHA-256.

CREATE TABLE admin_token (
  id         TEXT    NOT NULL PRIMARY KEY,
  hash       BLOB    NOT NULL,
  prefix     TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX admin_token_hash ON admin_token (hash);

-- Of an operator (by an admin token) or of a member (by an organization's token).
CREATE TABLE admin_session (
  hash           BLOB    NOT NULL PRIMARY KEY,
  admin_token_id TEXT,
  token_id       TEXT,
  created_at     INTEGER NOT NULL,
  seen_at        INTEGER NOT NULL,
  expires_at     INTEGER NOT NULL,
  CHECK ((admin_token_id IS NULL) <> (token_id IS NULL))
) STRICT, WITHOUT ROWID;

-- Stands for a token for a short time, with its rights and limits: what is given to a browser.
CREATE TABLE short_token (
  hash       BLOB    NOT NULL PRIMARY KEY,
  token_id   TEXT    NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Ids are UUIDv7, so they come in the order of time.
CREATE TABLE audit_entry (
  id              TEXT    NOT NULL PRIMARY KEY,
  made_at         INTEGER NOT NULL,
  actor_kind      TEXT    NOT NULL CHECK (actor_kind IN ('operator', 'member', 'command', 'service')),
  actor_id        TEXT,
  address         TEXT,
  request_id      TEXT,
  action          TEXT    NOT NULL,
  organization_id TEXT,
  subject_id      TEXT,
  before          TEXT,
  after           TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_entry_organization ON audit_entry (organization_id, id);

ALTER TABLE token ADD COLUMN last_used_at INTEGER;
