-- A token that came of a rotation shares the cap of the token that it goes back to: its own row only says whose.
ALTER TABLE token_balance ADD COLUMN budget_id TEXT;
