import { describe, expect, test } from "vitest";
import { type LoadReading, loadReader, memoryBytesFor, Overload } from "./overload.ts";

const LIMITS = { eventLoopDelayMs: 100, memoryShare: 0.9 };
const SAMPLES_A_SECOND = 10;

function overloadWith(first: LoadReading, limits = LIMITS) {
  const at = { reading: first, nowMs: 0, random: 0, collections: 0 };
  const noted: (object | "succeeded")[] = [];
  const overload = new Overload({
    limits,
    read: () => at.reading,
    collect: () => {
      at.collections += 1;
    },
    random: () => at.random,
    now: () => at.nowMs,
    outage: { failed: (fields) => noted.push(fields), succeeded: () => noted.push("succeeded") },
  });
  const run = (seconds: number) => {
    for (let count = 0; count < seconds * SAMPLES_A_SECOND; count += 1) {
      at.nowMs += 1_000 / SAMPLES_A_SECOND;
      overload.sample();
    }
  };
  return { overload, at, run, noted };
}

describe("An overloaded service", () => {
  test("takes all work below its limits, also at the limit itself", () => {
    const { overload, run } = overloadWith({ eventLoopDelayMs: 99, memoryShare: 0.9 });
    run(60);
    expect(overload.refusedShare).toBe(0);
    expect(overload.refusal()).toBeUndefined();
  });

  test("does not refuse anything because of one pause", () => {
    const { overload, at, run } = overloadWith({ eventLoopDelayMs: 1, memoryShare: 0 });
    run(10);
    at.reading.eventLoopDelayMs = 300;
    run(0.1);
    at.reading.eventLoopDelayMs = 1;
    run(0.1);
    expect(overload.refusedShare).toBeLessThan(0.2);
    run(1);
    expect(overload.refusedShare).toBe(0);
  });

  test("refuses a growing share while the event loop is late, and takes everything again when it is not", () => {
    const { overload, at, run, noted } = overloadWith({ eventLoopDelayMs: 150, memoryShare: 0 });
    run(1);
    const first = overload.refusedShare;
    run(2);
    expect(first).toBeGreaterThan(0);
    expect(overload.refusedShare).toBeGreaterThan(first);
    run(60);
    expect(overload.refusedShare).toBe(1);
    expect(overload.refusal()).toBeDefined();
    const fields = { cause: "event loop", eventLoopDelayMs: 150, memoryShare: 0, refusedShare: 1 };
    expect(noted.at(-1)).toEqual(fields);
    at.reading.eventLoopDelayMs = 0;
    run(10);
    expect(overload.refusedShare).toBe(0);
    expect(noted.at(-1)).toBe("succeeded");
  });

  test("names memory as the cause where it is full, and for a minute after its collection", () => {
    const { overload, at, run, noted } = overloadWith({ eventLoopDelayMs: 0, memoryShare: 0.96 });
    run(0.1);
    expect(overload.refusal()).toBeDefined();
    expect(noted.at(-1)).toMatchObject({ cause: "memory", eventLoopDelayMs: 0, memoryShare: 0.96 });
    at.reading = { eventLoopDelayMs: 400, memoryShare: 0.5 };
    run(10);
    overload.refusal();
    expect(noted.at(-1)).toMatchObject({ cause: "memory", memoryShare: 0.5, refusedShare: 1 });
    run(60);
    overload.refusal();
    expect(noted.at(-1)).toMatchObject({ cause: "event loop" });
  });

  test("refuses its share of the requests, with the time after which to try again", () => {
    const { overload, at, run } = overloadWith({ eventLoopDelayMs: 150, memoryShare: 0 });
    run(1.5);
    at.random = overload.refusedShare;
    expect(overload.refusal()).toBeUndefined();
    at.random = overload.refusedShare - 0.01;
    expect(overload.refusal()).toMatchObject({ status: 503, code: "overloaded", headers: { "retry-after": "2" } });
    run(60);
    expect(overload.refusal()).toMatchObject({ headers: { "retry-after": "5" } });
  });

  test("takes a late sample as a delay, also when a request finds that there is none", () => {
    const { overload, at } = overloadWith({ eventLoopDelayMs: undefined, memoryShare: 0 });
    for (let count = 0; count < 5; count += 1) {
      at.nowMs += 1_000;
      overload.refusal();
    }
    expect(overload.refusedShare).toBe(1);
  });

  test("keeps its share while the delay is not measured", () => {
    const { overload, at, run } = overloadWith({ eventLoopDelayMs: 150, memoryShare: 0 });
    run(2);
    const share = overload.refusedShare;
    at.reading.eventLoopDelayMs = undefined;
    run(10);
    expect(overload.refusedShare).toBe(share);
  });

  test("settles near its capacity under three times as much work", () => {
    const { overload, at, run } = overloadWith({ eventLoopDelayMs: 0, memoryShare: 0 });
    // Each of 300 requests a second takes 10 ms of the event loop, so a third of them can be served.
    let backlogMs = 0;
    let served = 0;
    const shares: number[] = [];
    for (let tick = 0; tick < 120 * SAMPLES_A_SECOND; tick += 1) {
      backlogMs += (1 - overload.refusedShare) * 30 * 10;
      const worked = Math.min(backlogMs, 100);
      backlogMs -= worked;
      at.reading.eventLoopDelayMs = backlogMs;
      run(0.1);
      if (tick < 60 * SAMPLES_A_SECOND) continue;
      served += worked;
      shares.push(overload.refusedShare);
    }
    expect(served).toBeGreaterThan(0.9 * 60 * 1_000);
    expect(Math.max(...shares) - Math.min(...shares)).toBeLessThan(0.5);
  });

  test("refuses by the memory above the limit, after it has collected garbage", () => {
    const { overload, at, run } = overloadWith({ eventLoopDelayMs: 0, memoryShare: 0.925 });
    run(0.1);
    expect(overload.refusedShare).toBeCloseTo(0.5);
    expect(at.collections).toBe(1);
    at.reading.memoryShare = 0.97;
    run(10);
    expect(overload.refusedShare).toBe(1);
    expect(at.collections).toBe(1);
    run(60);
    expect(at.collections).toBe(2);
    at.reading.memoryShare = 0.5;
    run(0.1);
    expect(overload.refusedShare).toBe(0);
  });

  test("refuses nothing where its limits are turned off", () => {
    const off = { eventLoopDelayMs: 0, memoryShare: 0 };
    const { overload, at, run } = overloadWith({ eventLoopDelayMs: 60_000, memoryShare: 1 }, off);
    run(60);
    expect(overload.refusedShare).toBe(0);
    expect(at.collections).toBe(0);
  });
});

test("The load of this process is read", async () => {
  const read = loadReader({ memoryBytes: memoryBytesFor(1), now: () => performance.now() });
  const blockMs = 200;
  await new Promise((resolve) => setTimeout(resolve, 50));
  const until = performance.now() + blockMs;
  while (performance.now() < until);
  await new Promise((resolve) => setTimeout(resolve, 20));
  const { eventLoopDelayMs, memoryShare } = read();
  // Short delays before and after the long one count little.
  expect(eventLoopDelayMs).toBeGreaterThan(blockMs / 2);
  expect(memoryShare).toBeGreaterThan(0);
  expect(memoryShare).toBeLessThan(1);
  const memoryBytes = memoryBytesFor(1_000);
  expect(loadReader({ memoryBytes, now: () => performance.now() })().memoryShare).toBeGreaterThan(memoryShare);
});
