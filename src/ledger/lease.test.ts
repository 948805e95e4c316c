import { beforeEach, describe, expect, test, vi } from "vitest";
import { StoreUnavailableError } from "../errors.ts";
import { Lease, type Moment } from "./lease.ts";

const LIFE_MS = 1_000;
let now: Moment;
let lease: Lease;

beforeEach(() => {
  now = { monotonicMs: 50, wallMs: 1_000_000 };
  lease = leaseOf(LIFE_MS);
});

const leaseOf = (lifeMs: number) => new Lease(lifeMs, () => ({ ...now }), { ...now });
const pass = (ms: number) => {
  now.monotonicMs += ms;
  now.wallMs += ms;
};

describe("a lease", () => {
  test("allows reading and sending for half its life, and only sending until 90 %", () => {
    pass(499);
    expect(lease.ready()).toBeUndefined();
    pass(1);
    expect(lease.ready()).toBeInstanceOf(Promise);
    lease.require();
    pass(399);
    lease.require();
    pass(1);
    expect(() => lease.require()).toThrow(StoreUnavailableError);
    expect(() => lease.ready()).toThrow(StoreUnavailableError);
  });

  test.each([
    ["the monotonic clock", { monotonicMs: 900, wallMs: 0 }],
    ["the wall clock, after the machine was suspended", { monotonicMs: 0, wallMs: 900 }],
    ["one clock, when the other was set back", { monotonicMs: 900, wallMs: -500_000 }],
  ])("is as old as it is by %s", (_clock, passed) => {
    now = { monotonicMs: now.monotonicMs + passed.monotonicMs, wallMs: now.wallMs + passed.wallMs };
    expect(() => lease.require()).toThrow(StoreUnavailableError);
  });

  test("is extended by a renewal, from the moment when the renewal was queued", async () => {
    pass(600);
    const queuedAt = { ...now };
    const ready = lease.ready();
    pass(100);
    lease.renew(queuedAt);
    await ready;
    pass(399);
    expect(lease.ready()).toBeUndefined();
    pass(1);
    expect(lease.ready()).toBeInstanceOf(Promise);
  });

  test("that has ended is not extended by a renewal, because its answer is being aborted", () => {
    pass(900);
    const queuedAt = { ...now };
    expect(() => lease.require()).toThrow(StoreUnavailableError);
    lease.renew(queuedAt);
    expect(() => lease.require()).toThrow(StoreUnavailableError);
    const checked = leaseOf(LIFE_MS);
    pass(900);
    checked.check();
    checked.renew({ ...now });
    expect(() => checked.require()).toThrow(StoreUnavailableError);
  });

  test("is not shortened by a late answer to an earlier renewal", () => {
    const early = { ...now };
    pass(600);
    lease.renew({ ...now });
    lease.renew(early);
    expect(lease.ready()).toBeUndefined();
  });

  test("keeps the reader waiting if the renewal is too old to continue reading", async () => {
    pass(300);
    const queuedAt = { ...now };
    pass(500);
    const ready = lease.ready();
    lease.renew(queuedAt);
    const state = await Promise.race([ready?.then(() => "ready"), Promise.resolve("waiting")]);
    expect(state).toBe("waiting");
    lease.renew({ ...now });
    await ready;
  });

  test("rejects the reader and calls its listener once when a check finds that it has ended", async () => {
    const listener = vi.fn();
    lease.onOver(listener);
    pass(600);
    const ready = lease.ready();
    lease.check();
    expect(listener).not.toHaveBeenCalled();
    pass(300);
    lease.check();
    lease.check();
    await expect(ready).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(listener).toHaveBeenCalledExactlyOnceWith(expect.any(StoreUnavailableError));
  });

  test("ends when another process has ended the hold, despite later renewals", () => {
    const listener = vi.fn();
    lease.onOver(listener);
    lease.end();
    lease.renew({ ...now });
    expect(() => lease.require()).toThrow(StoreUnavailableError);
    expect(listener).toHaveBeenCalledOnce();
  });

  test("with an infinite life never ends by age", () => {
    const endless = leaseOf(Number.POSITIVE_INFINITY);
    pass(1e12);
    expect(endless.ready()).toBeUndefined();
    endless.end();
    expect(() => endless.require()).toThrow(StoreUnavailableError);
  });
});
