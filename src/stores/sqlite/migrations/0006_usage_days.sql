-- What the holds of a day come to, summed up once the day is over: of an organization, or of all ('*'), by model, by
-- token, by organization, or by how long the first piece of the answer took. The books do not rest on it.
CREATE TABLE usage_day (
  organization_id TEXT NOT NULL,
  dimension       TEXT NOT NULL CHECK (dimension IN ('model', 'token', 'organization', 'first_token')),
  day             INTEGER NOT NULL,
  name            TEXT NOT NULL,
  requests        INTEGER NOT NULL,
  errors          INTEGER NOT NULL,
  charged         INTEGER NOT NULL,
  input_tokens    INTEGER NOT NULL,
  output_tokens   INTEGER NOT NULL,
  PRIMARY KEY (organization_id, dimension, day, name)
) STRICT, WITHOUT ROWID;

-- The days that are summed up.
CREATE TABLE usage_day_done (
  day     INTEGER NOT NULL PRIMARY KEY,
  done_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
