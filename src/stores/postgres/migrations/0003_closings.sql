-- Requests that began before `closed_before` are closed: nothing more is booked for them. Null: none.
ALTER TABLE balance ADD COLUMN closed_before bigint;

-- What the closed requests of an organization add up to: those that began before `before_at` and were booked, with all their
-- adjustments, before it. Their rows are removed later; until then they count as absent. `price`: their tokens at their
-- prices.
CREATE TABLE closing (
  organization_id     text COLLATE "C" NOT NULL PRIMARY KEY,
  before_at           bigint NOT NULL,
  requests            bigint NOT NULL,
  cost                bigint NOT NULL CHECK (cost >= 0),
  shortfall           bigint NOT NULL CHECK (shortfall >= 0),
  price               bigint NOT NULL,
  input_tokens        bigint NOT NULL,
  cached_input_tokens bigint NOT NULL,
  cache_write_tokens  bigint NOT NULL,
  output_tokens       bigint NOT NULL,
  reasoning_tokens    bigint NOT NULL,
  further_tokens      text
);

-- The cost of the closed requests by the token that made them, and by the grant that it was drawn from.
CREATE TABLE closing_part (
  organization_id text COLLATE "C" NOT NULL,
  dimension       text COLLATE "C" NOT NULL CHECK (dimension IN ('token', 'grant')),
  name            text COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount >= 0),
  PRIMARY KEY (organization_id, dimension, name)
);
