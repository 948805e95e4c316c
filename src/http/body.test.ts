import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { startTestServer } from "../../test/support/server.ts";
import { FairBudget } from "../ledger/fair-budget.ts";
import { ANONYMOUS, BodyReservation, holdBody, JsonScanner } from "./body.ts";

const NO_BOUND = Number.MAX_SAFE_INTEGER;
const scan = (text: string, bounds: { depth?: number; values?: number }) =>
  new JsonScanner({ depth: NO_BOUND, values: NO_BOUND, ...bounds }).scan(Buffer.from(text));

function depthOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

/** Counts like the scanner, where an empty array or object counts as containing a value. */
function valuesOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 1;
  const inner = Object.values(value).map(valuesOf);
  return 1 + (inner.length === 0 ? 1 : inner.reduce((sum, one) => sum + one, 0));
}

describe("JsonScanner", () => {
  test("The scanner finds the depth and the number of values of any JSON text, however it is split.", () => {
    const strange = fc.oneof(fc.jsonValue(), fc.array(fc.constantFrom('"', "\\", "{", "[", ",", '\\"', "}]")));
    fc.assert(
      fc.property(strange, fc.nat(3), fc.integer({ min: 1, max: 7 }), (value, space, size) => {
        const bytes = Buffer.from(JSON.stringify(value, undefined, space));
        const depth = depthOf(value);
        const values = valuesOf(value);
        const met = (bounds: { depth: number; values: number }) => {
          const scanner = new JsonScanner(bounds);
          for (let at = 0; at < bytes.length; at += size) {
            const excess = scanner.scan(bytes.subarray(at, at + size));
            if (excess !== undefined) return excess;
          }
          return undefined;
        };
        expect(met({ depth, values })).toBeUndefined();
        if (depth > 0) expect(met({ depth: depth - 1, values })).toBe("depth");
        if (values > 1) expect(met({ depth, values: values - 1 })).toBe("values");
      }),
      { numRuns: 3_000 },
    );
  });

  test("The scanner counts nothing inside strings.", () => {
    expect(scan(`["${"[{,".repeat(1_000)}","\\"[[[,,,"]`, { depth: 1, values: 3 })).toBeUndefined();
  });

  test("The scanner stops at the first byte that exceeds a limit.", () => {
    expect(scan("[[[", { depth: 2 })).toBe("depth");
    expect(scan("[[", { depth: 2 })).toBeUndefined();
    expect(scan("[1,2", { values: 3 })).toBeUndefined();
    expect(scan("[1,2,", { values: 3 })).toBe("values");
  });
});

test("The bodies of all unauthenticated callers take at most a sixteenth of the budget.", () => {
  const budget = new FairBudget(1_600);
  const anonymous = [ANONYMOUS, ANONYMOUS].map((owner) => new BodyReservation(budget, owner));
  const other = new BodyReservation(budget, "org_1");
  const taken = [anonymous[0]?.add(60), anonymous[1]?.add(40), anonymous[1]?.add(1), other.add(800), other.add(1)];
  expect(taken).toEqual([true, true, false, true, false]);
  for (const reservation of anonymous) {
    reservation.release();
    reservation.release();
  }
  expect(budget.used).toBe(800);
});

test("The body of a completion counts until the completion has ended, whether or not its client is connected.", () => {
  const budget = new FairBudget(1_000);
  const bodyReservation = new BodyReservation(budget, "org_1");
  bodyReservation.add(300);
  const request = { bodyReservation };
  const release = holdBody(request);
  // The hook that runs when the connection is closed finds nothing to release.
  expect(request.bodyReservation).toBeNull();
  expect(budget.used).toBe(300);
  release();
  expect(budget.used).toBe(0);
});

test("A request with a wrong bound of its cost returns its body's share of the budget.", async () => {
  const { url, server } = await startTestServer({ bodyLimitBytes: 4_096, bodiesInFlightBytes: 8_192 });
  const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "x".repeat(2_000) }] });
  const headers = { authorization: "Bearer t", "content-type": "application/json", "x-tollgate-max-cost": "much" };
  for (let sent = 0; sent < 8; sent += 1) {
    const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
    expect(await answer.json()).toMatchObject({ error: { param: "x-tollgate-max-cost" } });
  }
  await server.close({ delayMs: 0, drainMs: 0 });
});
