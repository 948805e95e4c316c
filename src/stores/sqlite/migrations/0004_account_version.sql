-- A number that every change of what a token may do replaces, for services that keep tokens in memory. It is random, so that
-- it never comes again, not even after a failover that loses changes. No row: no change yet. New rows of the tables below
-- change no token that a service can know, and short tokens are only removed after their expiry.
CREATE TABLE account_version (
  id      INTEGER NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT;

CREATE TRIGGER token_changed
  AFTER UPDATE OF organization_id, hash, scopes, models, limits, expires_at, revoked_at ON token
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER token_removed AFTER DELETE ON token
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER organization_changed
  AFTER UPDATE OF kind, status, limits, keeps_conversations ON organization
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER organization_removed AFTER DELETE ON organization
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER admin_session_removed AFTER DELETE ON admin_session
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER admin_token_changed AFTER UPDATE OF revoked_at ON admin_token
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, random() >> 11) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
END;
