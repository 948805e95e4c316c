-- A charge may also be limited by the bounds of its hold, or estimated where the output was not visible.
ALTER TABLE usage_event DROP CONSTRAINT usage_event_basis_check;
ALTER TABLE usage_event ADD CONSTRAINT usage_event_basis_check
  CHECK (basis IN ('reported', 'counted', 'bounded', 'estimated'));
