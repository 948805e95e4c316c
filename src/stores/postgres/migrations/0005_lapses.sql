-- A grant's lapse is a row of its own, so that what changed a balance can be listed with its time.

ALTER TABLE adjustment
  DROP CONSTRAINT adjustment_kind_check,
  ADD CONSTRAINT adjustment_kind_check CHECK (kind IN ('revoke', 'credit', 'lapse'));

-- The statement's order.
CREATE INDEX adjustment_made_at ON adjustment (organization_id, made_at, id);

-- What had lapsed before is one row; of which grants, nobody noted.
INSERT INTO adjustment (organization_id, id, kind, amount, draws, made_at)
SELECT organization_id, 'lapse_' || expired, 'lapse', expired, '[]',
  floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM balance WHERE expired > 0;
