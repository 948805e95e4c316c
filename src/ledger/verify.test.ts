import { expect, test } from "vitest";
import type { OrganizationVerification } from "../stores/queries/verify.ts";
import { holdEndsWithinMs, verifyBooks } from "./verify.ts";

const ENDS_WITHIN_MS = 510_000;

async function* organizations(count: number): AsyncGenerator<string> {
  for (let index = 0; index < count; index += 1) yield `org_${index}`;
}
function books(violationsOf: (organizationId: string) => number) {
  return {
    async verify(organizationId: string): Promise<OrganizationVerification> {
      const violations = Array.from({ length: violationsOf(organizationId) }, (_, index) => {
        return { invariant: 2, organizationId, holdId: null, message: `number ${index}` };
      });
      return { organizationId, holds: 3, events: 2, violations };
    },
    verifyOwners: async () => [],
  };
}

test("a verification counts the holds and events that were checked", async () => {
  const verification = await verifyBooks(
    books(() => 0),
    organizations(4),
    ENDS_WITHIN_MS,
  );
  expect(verification).toEqual({ ok: true, organizations: 4, holds: 12, events: 8, violations: [] });
});

test("a verification reports the first violations, and checks all organizations", async () => {
  const broken = books((organizationId) => (organizationId === "org_0" ? 0 : 60));
  const verification = await verifyBooks(broken, organizations(5), ENDS_WITHIN_MS);
  expect(verification).toMatchObject({ ok: false, organizations: 5, holds: 15 });
  expect(verification.violations).toHaveLength(100);
  expect(verification.violations[0]).toMatchObject({ organizationId: "org_1", message: "number 0" });
  expect(verification.violations[60]).toMatchObject({ organizationId: "org_2", message: "number 0" });
});

test("a verification fails if only the last organization is broken", async () => {
  const broken = books((organizationId) => (organizationId === "org_2" ? 1 : 0));
  expect(await verifyBooks(broken, organizations(3), ENDS_WITHIN_MS)).toMatchObject({
    ok: false,
    violations: [{ holdId: null }],
  });
});

test("a verification without organizations succeeds", async () => {
  expect(
    await verifyBooks(
      books(() => 1),
      organizations(0),
      ENDS_WITHIN_MS,
    ),
  ).toMatchObject({ ok: true, organizations: 0 });
});

test.each([
  [{ holdSeconds: 120, sweepSeconds: 10, recoverySeconds: 480 }, ENDS_WITHIN_MS],
  // Without a time of recovery, another service still waits for one life.
  [{ holdSeconds: 120, sweepSeconds: 10, recoverySeconds: 0 }, 150_000],
  [{ holdSeconds: 120, sweepSeconds: 60, recoverySeconds: 480 }, 660_000],
])("with %o, a hold ends within %i ms after its expiry", (times, endsWithinMs) => {
  expect(holdEndsWithinMs(times)).toBe(endsWithinMs);
});
