-- A number that every change of what a token may do replaces, for services that keep tokens in memory. It is random, so that
-- it never comes again, not even after a failover that loses changes. No row: no change yet. New rows of the tables below
-- change no token that a service can know, and short tokens are only removed after their expiry.
CREATE TABLE account_version (
  id      bigint NOT NULL PRIMARY KEY,
  version bigint NOT NULL
);

CREATE FUNCTION replace_account_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO account_version (id, version) VALUES (1, floor(random() * 9007199254740991))
  ON CONFLICT (id) DO UPDATE SET version = excluded.version;
  RETURN NULL;
END
$$;

CREATE TRIGGER token_changed
  AFTER DELETE OR UPDATE OF organization_id, hash, scopes, models, limits, expires_at, revoked_at ON token
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER organization_changed
  AFTER DELETE OR UPDATE OF kind, status, limits, keeps_conversations ON organization
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER admin_session_removed AFTER DELETE ON admin_session
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();

CREATE TRIGGER admin_token_changed AFTER UPDATE OF revoked_at ON admin_token
  FOR EACH ROW EXECUTE FUNCTION replace_account_version();
