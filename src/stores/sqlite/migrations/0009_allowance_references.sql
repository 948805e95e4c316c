-- What an allowance is for: an organization has one of a reference, however often it is asked for.
ALTER TABLE allowance ADD COLUMN reference TEXT;

CREATE UNIQUE INDEX allowance_reference ON allowance (organization_id, reference) WHERE reference IS NOT NULL;
