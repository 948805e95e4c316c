-- The token that a rotation made of this one: a token is rotated once.
ALTER TABLE token ADD COLUMN successor_id text COLLATE "C";

UPDATE token SET successor_id = (
  SELECT entry."after"::json ->> 'successor' FROM audit_entry AS entry
  WHERE entry.organization_id = token.organization_id AND entry.subject_id = token.id AND entry.action = 'token.rotate'
  ORDER BY entry.id DESC LIMIT 1
)
WHERE id IN (SELECT subject_id FROM audit_entry WHERE action = 'token.rotate');

-- A short token is valid while its session lasts and the admin token behind it is not revoked. Those that exist name
-- neither and would have expired within minutes.
DELETE FROM short_token;
ALTER TABLE short_token ADD COLUMN session_hash bytea;
ALTER TABLE short_token ADD COLUMN admin_token_id text COLLATE "C";

-- Sign-ins are recorded as well, also those of somebody who presented no valid token.
ALTER TABLE audit_entry DROP CONSTRAINT audit_entry_actor_kind_check;
ALTER TABLE audit_entry ADD CONSTRAINT audit_entry_actor_kind_check
  CHECK (actor_kind IN ('operator', 'member', 'command', 'service', 'anonymous'));

-- Only the newest failed sign-ins are kept.
CREATE INDEX audit_entry_failed_sign_in ON audit_entry (id) WHERE action = 'session.sign_in_failed';
