-- Who may look after the service, and what they did. Secrets are kept as SHA-256.

CREATE TABLE admin_token (
  id         text   COLLATE "C" NOT NULL PRIMARY KEY,
  hash       bytea  NOT NULL,
  prefix     text   NOT NULL,
  created_at bigint NOT NULL,
  revoked_at bigint
);

CREATE UNIQUE INDEX admin_token_hash ON admin_token (hash);

-- Of an operator (by an admin token) or of a member (by an organization's token).
CREATE TABLE admin_session (
  hash           bytea  NOT NULL PRIMARY KEY,
  admin_token_id text   COLLATE "C",
  token_id       text   COLLATE "C",
  created_at     bigint NOT NULL,
  seen_at        bigint NOT NULL,
  expires_at     bigint NOT NULL,
  CHECK ((admin_token_id IS NULL) <> (token_id IS NULL))
);

-- Stands for a token for a short time, with its rights and limits: what is given to a browser.
CREATE TABLE short_token (
  hash       bytea  NOT NULL PRIMARY KEY,
  token_id   text   COLLATE "C" NOT NULL,
  expires_at bigint NOT NULL
);

-- Ids are UUIDv7, so they come in the order of time.
CREATE TABLE audit_entry (
  id              text   COLLATE "C" NOT NULL PRIMARY KEY,
  made_at         bigint NOT NULL,
  actor_kind      text   NOT NULL CHECK (actor_kind IN ('operator', 'member', 'command', 'service')),
  actor_id        text,
  address         text,
  request_id      text,
  action          text   COLLATE "C" NOT NULL,
  organization_id text   COLLATE "C",
  subject_id      text,
  before          text,
  after           text
);

CREATE INDEX audit_entry_organization ON audit_entry (organization_id, id);

ALTER TABLE token ADD COLUMN last_used_at bigint;
