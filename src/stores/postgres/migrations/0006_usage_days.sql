-- What the holds of a day come to, summed up once the day is over: of an organization, or of all ('*'), by model, by
-- token, by organization, or by how long the first piece of the answer took. The books do not rest on it.
CREATE TABLE usage_day (
  organization_id text COLLATE "C" NOT NULL,
  dimension       text COLLATE "C" NOT NULL CHECK (dimension IN ('model', 'token', 'organization', 'first_token')),
  day             bigint NOT NULL,
  name            text COLLATE "C" NOT NULL,
  requests        bigint NOT NULL,
  errors          bigint NOT NULL,
  charged         bigint NOT NULL,
  input_tokens    bigint NOT NULL,
  output_tokens   bigint NOT NULL,
  PRIMARY KEY (organization_id, dimension, day, name)
);

-- The days that are summed up.
CREATE TABLE usage_day_done (
  day     bigint NOT NULL PRIMARY KEY,
  done_at bigint NOT NULL
);
