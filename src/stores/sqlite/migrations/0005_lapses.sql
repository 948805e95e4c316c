-- A grant's lapse is a row of its own, so that what changed a balance can be listed with its time.

CREATE TABLE adjustment_with_lapses (
  organization_id TEXT    NOT NULL,
  id              TEXT    NOT NULL,
  kind            TEXT    NOT NULL CHECK (kind IN ('revoke', 'credit', 'lapse')),
  amount          INTEGER NOT NULL CHECK (amount >= 0),
  draws           TEXT    NOT NULL,
  hold_id         TEXT,
  token_id        TEXT,
  reference       TEXT,
  note            TEXT,
  made_at         INTEGER NOT NULL,
  PRIMARY KEY (organization_id, id)
) STRICT, WITHOUT ROWID;

INSERT INTO adjustment_with_lapses SELECT * FROM adjustment;
DROP TABLE adjustment;
ALTER TABLE adjustment_with_lapses RENAME TO adjustment;

CREATE UNIQUE INDEX adjustment_reference ON adjustment (organization_id, kind, reference) WHERE reference IS NOT NULL;

-- The statement's order.
CREATE INDEX adjustment_made_at ON adjustment (organization_id, made_at, id);

-- What had lapsed before is one row; of which grants, nobody noted.
INSERT INTO adjustment (organization_id, id, kind, amount, draws, made_at)
SELECT organization_id, 'lapse_' || expired, 'lapse', expired, '[]', CAST(unixepoch('subsec') * 1000 AS INTEGER)
FROM balance WHERE expired > 0;
