-- What a revocation or a credit was asked for, so that a reference that comes again can be compared with it.
ALTER TABLE adjustment ADD COLUMN is_all bigint NOT NULL DEFAULT 0 CHECK (is_all IN (0, 1));
ALTER TABLE adjustment ADD COLUMN grant_id text COLLATE "C";
ALTER TABLE adjustment ADD COLUMN expires_at bigint;

-- A credit is a grant of the same id, which knows when it lapses.
UPDATE adjustment SET expires_at = (
  SELECT credit_grant.expires_at FROM credit_grant
  WHERE credit_grant.organization_id = adjustment.organization_id AND credit_grant.id = adjustment.id
) WHERE kind = 'credit';
