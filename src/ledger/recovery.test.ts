import { beforeEach, describe, expect, test } from "vitest";
import type { SeenHold } from "../stores/queries/books.ts";
import { Recovery, type RecoveryOptions } from "./recovery.ts";

const LIFE_MS = 120_000;
const RECOVERY_MS = 480_000;
const RENEW_MS = 10_000;
/** On the store's clock. */
const EXPIRES_AT_MS = 1_000_000_000;

let monotonicMs: number;
let running: Set<string>;
beforeEach(() => {
  monotonicMs = 0;
  running = new Set();
});

function recoveryOf(options: Partial<RecoveryOptions> = {}): Recovery {
  return new Recovery({
    owner: "own",
    isShared: true,
    holdLifeMs: LIFE_MS,
    recoveryMs: RECOVERY_MS,
    renewEveryMs: RENEW_MS,
    isRunning: (holdId) => running.has(holdId),
    monotonicMs: () => monotonicMs,
    ...options,
  });
}
const holdOf = (changes: Partial<SeenHold> = {}): SeenHold => {
  return { organizationId: "org_1", holdId: "hold_1", owner: "other", expiresAtMs: EXPIRES_AT_MS, ...changes };
};
/** Returns the `afterExpiryMs` of the claim; undefined if the hold stays open. */
function claimOf(recovery: Recovery, hold: SeenHold, nowMs: number): number | null | undefined {
  const [claimed] = recovery.claims([hold], nowMs);
  if (claimed !== undefined) expect(claimed).toMatchObject({ kind: "expire", holdId: hold.holdId });
  return claimed?.claim?.afterExpiryMs;
}

describe("a hold of this process", () => {
  test("is expired when it is overdue and its request has ended", () => {
    const recovery = recoveryOf();
    const own = holdOf({ owner: "own" });
    expect(claimOf(recovery, own, EXPIRES_AT_MS - 1)).toBeUndefined();
    expect(claimOf(recovery, own, EXPIRES_AT_MS)).toBe(0);
    running.add(own.holdId);
    expect(claimOf(recovery, own, EXPIRES_AT_MS + LIFE_MS)).toBeUndefined();
  });
});

describe("a hold of another process", () => {
  test("is expired when it was unchanged for a life, and is overdue by the recovery time on the store's clock", () => {
    const recovery = recoveryOf();
    expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS + RECOVERY_MS)).toBeUndefined();
    monotonicMs = LIFE_MS - 1;
    expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS + RECOVERY_MS + LIFE_MS)).toBeUndefined();
    monotonicMs = LIFE_MS;
    expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS + RECOVERY_MS - 1)).toBeUndefined();
    expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS + RECOVERY_MS)).toBe(RECOVERY_MS);
  });

  test("stays open for another life when it was renewed or changed its owner", () => {
    const recovery = recoveryOf();
    const late = EXPIRES_AT_MS + 10 * RECOVERY_MS;
    claimOf(recovery, holdOf(), late);
    monotonicMs = LIFE_MS;
    expect(claimOf(recovery, holdOf({ expiresAtMs: EXPIRES_AT_MS + 1 }), late)).toBeUndefined();
    monotonicMs = 2 * LIFE_MS;
    expect(claimOf(recovery, holdOf({ expiresAtMs: EXPIRES_AT_MS + 1 }), late)).toBe(RECOVERY_MS);
    expect(claimOf(recovery, holdOf({ expiresAtMs: EXPIRES_AT_MS + 1, owner: "third" }), late)).toBeUndefined();
  });

  test("stays open until the store was available for a life without interruption", () => {
    const recovery = recoveryOf();
    const late = EXPIRES_AT_MS + 10 * RECOVERY_MS;
    claimOf(recovery, holdOf(), late);
    monotonicMs = LIFE_MS;
    recovery.lost();
    expect(claimOf(recovery, holdOf(), late)).toBeUndefined();
    monotonicMs = 2 * LIFE_MS - 1;
    expect(claimOf(recovery, holdOf(), late)).toBeUndefined();
    monotonicMs = 2 * LIFE_MS;
    expect(claimOf(recovery, holdOf(), late)).toBe(RECOVERY_MS);
  });

  test("is not expired because the store's clock jumped", () => {
    const recovery = recoveryOf();
    claimOf(recovery, holdOf(), EXPIRES_AT_MS);
    monotonicMs = RENEW_MS;
    expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS + 1_000 * RECOVERY_MS)).toBeUndefined();
  });

  test("with an expiry in the far future is expired when it was unchanged for a life and the recovery time", () => {
    const recovery = recoveryOf();
    const nowMs = EXPIRES_AT_MS - LIFE_MS - 1;
    claimOf(recovery, holdOf(), nowMs);
    monotonicMs = LIFE_MS + RECOVERY_MS - 1;
    expect(claimOf(recovery, holdOf(), nowMs)).toBeUndefined();
    monotonicMs = LIFE_MS + RECOVERY_MS;
    expect(claimOf(recovery, holdOf(), nowMs)).toBeNull();
  });
});

describe("a hold of an ended process", () => {
  test("is expired after two missing renewals, even before its expiry", () => {
    const recovery = recoveryOf();
    recovery.endOwner("other");
    expect(recovery.owners).toEqual({ only: ["other"] });
    expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS - LIFE_MS)).toBeUndefined();
    monotonicMs = 2 * RENEW_MS - 1;
    expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS - LIFE_MS)).toBeUndefined();
    monotonicMs = 2 * RENEW_MS;
    expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS - LIFE_MS)).toBeNull();
  });

  test("stays open if it is renewed after all", () => {
    const recovery = recoveryOf();
    recovery.endOwner("other");
    claimOf(recovery, holdOf(), EXPIRES_AT_MS - LIFE_MS);
    monotonicMs = 2 * RENEW_MS;
    expect(claimOf(recovery, holdOf({ expiresAtMs: EXPIRES_AT_MS + 1 }), EXPIRES_AT_MS - LIFE_MS)).toBeUndefined();
  });

  test("is searched for until none is left", () => {
    const recovery = recoveryOf();
    recovery.endOwner("other");
    recovery.claims([], 0);
    expect(recovery.owners).toEqual({ only: ["other"] });
    monotonicMs = 2 * RENEW_MS;
    recovery.claims([], 0);
    expect(recovery.owners).toEqual({ only: [] });
  });
});

test("a hold of another process is expired immediately if the store is not shared", () => {
  const recovery = recoveryOf({ isShared: false });
  expect(claimOf(recovery, holdOf(), EXPIRES_AT_MS - LIFE_MS)).toBeNull();
});
