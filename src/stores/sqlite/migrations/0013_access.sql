-- The token that a rotation made of this one: a token is rotated once.
ALTER TABLE token ADD COLUMN successor_id TEXT;

UPDATE token SET successor_id = (
  SELECT json_extract(entry."after", '$.successor') FROM audit_entry AS entry
  WHERE entry.organization_id = token.organization_id AND entry.subject_id = token.id AND entry.action = 'token.rotate'
  ORDER BY entry.id DESC LIMIT 1
)
WHERE id IN (SELECT subject_id FROM audit_entry WHERE action = 'token.rotate');

-- A short token is valid while its session lasts and the admin token behind it is not revoked. Those that exist name
-- neither and would have expired within minutes.
DELETE FROM short_token;
ALTER TABLE short_token ADD COLUMN session_hash BLOB;
ALTER TABLE short_token ADD COLUMN admin_token_id TEXT;

-- Sign-ins are recorded as well, also those of somebody who presented no valid token.
CREATE TABLE audit_entry_with_sign_ins (
  id              TEXT    NOT NULL PRIMARY KEY,
  made_at         INTEGER NOT NULL,
  actor_kind      TEXT    NOT NULL CHECK (actor_kind IN ('operator', 'member', 'command', 'service', 'anonymous')),
  actor_id        TEXT,
  address         TEXT,
  request_id      TEXT,
  action          TEXT    NOT NULL,
  organization_id TEXT,
  subject_id      TEXT,
  before          TEXT,
  after           TEXT
) STRICT, WITHOUT ROWID;

INSERT INTO audit_entry_with_sign_ins SELECT * FROM audit_entry;
DROP TABLE audit_entry;
ALTER TABLE audit_entry_with_sign_ins RENAME TO audit_entry;

CREATE INDEX audit_entry_organization ON audit_entry (organization_id, id);

-- Only the newest failed sign-ins are kept.
CREATE INDEX audit_entry_failed_sign_in ON audit_entry (id) WHERE action = 'session.sign_in_failed';
