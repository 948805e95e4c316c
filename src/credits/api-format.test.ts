import { expect, test } from "vitest";
import { usageReport } from "./api-format.ts";

test("a usage report states the balance in credits, without expired credits", () => {
  const balance = {
    organizationId: "org_1",
    granted: 100_000_000n,
    available: 60_500_000n,
    held: 9_000_000n,
    spent: 20_499_986n,
    expired: 10_000_014n,
    nextChangeAtMs: null,
  };
  const report = usageReport(balance);
  expect(report).toEqual({
    object: "usage",
    organization_id: "org_1",
    creditsAvailable: 60.5,
    creditsTotal: 89.999986,
    creditsUsed: 20.499986,
    creditsHeld: 9,
  });
});
