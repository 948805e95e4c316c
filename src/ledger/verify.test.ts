import { expect, test } from "vitest";
import type { Books } from "../stores/queries/books.ts";
import { Violations } from "../stores/queries/verify-report.ts";
import { holdEndsWithinMs, verifyBooks } from "./verify.ts";

const ENDS_WITHIN_MS = 510_000;

function books(count: number, violationsOf: (organizationId: string) => number) {
  const ids = Array.from({ length: count }, (_, index) => `org_${index}`);
  return {
    async verify(organizationId: string): ReturnType<Books["verify"]> {
      const violations = Array.from({ length: violationsOf(organizationId) }, (_, index) => {
        return { invariant: 2, organizationId, holdId: null, message: `number ${index}` };
      });
      return { organizationId, holds: 3, events: 2, violations, more: violations.length === 600 ? 7 : 0 };
    },
    verifyStore: async () => new Violations("*"),
    async *organizationIds() {
      yield* ids;
    },
  };
}

test("a verification counts the holds and events that were checked", async () => {
  const verification = await verifyBooks(
    books(1_001, () => 0),
    ENDS_WITHIN_MS,
  );
  const counts = { organizations: 1_001, holds: 3_003, events: 2_002 };
  expect(verification).toEqual({ ok: true, ...counts, violations: [], moreViolations: 0 });
});

test("a verification reports the first violations, counts the others, and checks all organizations", async () => {
  const broken = books(5, (organizationId) => (organizationId === "org_0" ? 0 : 600));
  const verification = await verifyBooks(broken, ENDS_WITHIN_MS);
  expect(verification).toMatchObject({ ok: false, organizations: 5, holds: 15, moreViolations: 1_400 + 4 * 7 });
  expect(verification.violations).toHaveLength(1_000);
  expect(verification.violations[0]).toMatchObject({ organizationId: "org_1", message: "number 0" });
  expect(verification.violations[600]).toMatchObject({ organizationId: "org_2", message: "number 0" });
});

test("a verification fails if only the last organization is broken", async () => {
  const broken = books(3, (organizationId) => (organizationId === "org_2" ? 1 : 0));
  expect(await verifyBooks(broken, ENDS_WITHIN_MS)).toMatchObject({ ok: false, violations: [{ holdId: null }] });
});

test("a verification fails if only what organizations share is broken", async () => {
  const verifyStore = async () => {
    const found = new Violations("*");
    found.report(11, "malformed", null, { organizationId: "org_0", row: { table: "audit_entry", id: "1" } });
    return found;
  };
  const verification = await verifyBooks({ ...books(0, () => 1), verifyStore }, ENDS_WITHIN_MS);
  const row = { table: "audit_entry", id: "1" };
  expect(verification).toMatchObject({ ok: false, organizations: 0, violations: [{ organizationId: "org_0", row }] });
});

test("of the violations of one invariant, the first hundred are kept and all are counted", () => {
  const found = new Violations("org_0");
  for (let index = 0; index < 120; index += 1) found.report(11, `number ${index}`);
  found.report(1, "another invariant");
  expect([found.list.length, found.more, found.list.at(-1)?.message]).toEqual([101, 20, "another invariant"]);
});

test.each([
  [{ holdSeconds: 120, sweepSeconds: 10, recoverySeconds: 480 }, ENDS_WITHIN_MS],
  // Without a time of recovery, another service still waits for one life.
  [{ holdSeconds: 120, sweepSeconds: 10, recoverySeconds: 0 }, 150_000],
  [{ holdSeconds: 120, sweepSeconds: 60, recoverySeconds: 480 }, 660_000],
])("with %o, a hold ends within %i ms after its expiry", (times, endsWithinMs) => {
  expect(holdEndsWithinMs(times)).toBe(endsWithinMs);
});
