import { describe, expect, test } from "vitest";
import { ApiError } from "../errors.ts";
import { memoryBytesFor, memoryReader, Overload, RunningWork } from "./overload.ts";

const LIMITS = { eventLoopDelayMs: 100, memoryShare: 0.9 };
const SAMPLE_EVERY_MS = 20;
const TURNS_A_SAMPLE = 10;

function overloadWith(state: { delayMs: number; memoryShare: number }, limits = LIMITS) {
  const at = { ...state, nowMs: 0, random: 0, turns: 0, connectionsATurn: 0 };
  const noted: (object | "succeeded")[] = [];
  const stalls: number[] = [];
  const overload = new Overload({
    limits,
    readMemoryShare: () => at.memoryShare,
    random: () => at.random,
    now: () => at.nowMs,
    readTurns: () => at.turns,
    onStall: (durationMs) => stalls.push(durationMs),
    outage: { failed: (fields) => noted.push(fields), succeeded: () => noted.push("succeeded") },
  });
  /** Samples while the event loop is late, as a timer would. */
  const run = (seconds: number) => {
    for (const endMs = at.nowMs + seconds * 1_000; at.nowMs < endMs; ) {
      at.nowMs += SAMPLE_EVERY_MS + at.delayMs;
      at.turns += TURNS_A_SAMPLE;
      for (let count = 0; count < TURNS_A_SAMPLE * at.connectionsATurn; count += 1) overload.countConnection();
      overload.turn();
    }
  };
  return { overload, at, run, noted, stalls };
}

describe("An overloaded service", () => {
  test("takes all work below its limits, also at the limit itself", () => {
    const { overload, run } = overloadWith({ delayMs: 99, memoryShare: 0.9 });
    run(60);
    expect(overload.refusedShare).toBe(0);
    expect(overload.refusal()).toBeUndefined();
  });

  test("does not refuse anything because of one pause", () => {
    const { overload, at, run } = overloadWith({ delayMs: 1, memoryShare: 0 });
    run(10);
    at.delayMs = 300;
    run(0.1);
    at.delayMs = 1;
    run(0.1);
    expect(overload.refusedShare).toBeLessThan(0.2);
    run(1);
    expect(overload.refusedShare).toBe(0);
  });

  test("does not refuse anything after the machine was suspended for a minute", () => {
    const { overload, at, run, stalls } = overloadWith({ delayMs: 1, memoryShare: 0 });
    run(10);
    expect(stalls).toEqual([]);
    at.nowMs += 60_000;
    expect(overload.refusal()).toBeUndefined();
    expect(stalls).toEqual([60_000]);
    overload.turn();
    expect(overload.refusedShare).toBe(0);
    run(1);
    expect(overload.refusedShare).toBe(0);
  });

  test("refuses a growing share while the event loop is late, and takes everything again when it is not", () => {
    const { overload, at, run, noted } = overloadWith({ delayMs: 150, memoryShare: 0 });
    run(1);
    const first = overload.refusedShare;
    run(2);
    expect(first).toBeGreaterThan(0);
    expect(overload.refusedShare).toBeGreaterThan(first);
    run(60);
    expect(overload.refusedShare).toBe(1);
    expect(overload.refusal()).toBeDefined();
    const fields = { cause: "event loop", delayMs: 150, memoryShare: 0, refusedShare: 1 };
    expect(noted.at(-1)).toEqual(fields);
    at.delayMs = 0;
    run(10);
    expect(overload.refusedShare).toBe(0);
    expect(noted.at(-1)).toBe("succeeded");
  });

  test("refuses its share of the requests, with the time after which to try again", () => {
    const { overload, at, run } = overloadWith({ delayMs: 150, memoryShare: 0 });
    run(1.5);
    at.random = overload.refusedShare;
    expect(overload.refusal()).toBeUndefined();
    at.random = overload.refusedShare - 0.01;
    expect(overload.refusal()).toMatchObject({ status: 503, code: "overloaded", headers: { "retry-after": "2" } });
    run(60);
    expect(overload.refusal()).toMatchObject({ headers: { "retry-after": "5" } });
  });

  test("takes a late sample as a delay, also when a request finds that there is none", () => {
    const { overload, at } = overloadWith({ delayMs: 0, memoryShare: 0 });
    for (let count = 0; count < 5; count += 1) {
      at.nowMs += 1_000;
      overload.refusal();
    }
    expect(overload.refusedShare).toBe(1);
  });

  test("takes a long turn of the event loop as one delay, however many requests arrive in it", () => {
    const { overload, at } = overloadWith({ delayMs: 0, memoryShare: 0 }, { eventLoopDelayMs: 250, memoryShare: 0 });
    at.random = 0.9;
    const refusals: boolean[] = [];
    while (at.nowMs < 4_000) {
      at.nowMs += 1;
      refusals.push(overload.refusal() !== undefined);
    }
    expect(refusals.indexOf(true)).toBeLessThan(2_500);
    expect(refusals.slice(2_500)).not.toContain(false);
  });

  test("refuses a growing share while each turn of an event loop on time has a new connection, because others wait", () => {
    const { overload, at, run, noted } = overloadWith({ delayMs: 0, memoryShare: 0 });
    at.connectionsATurn = 0.9;
    run(60);
    expect(overload.refusal()).toBeUndefined();
    at.connectionsATurn = 1;
    run(0.1);
    expect(overload.refusal()).toBeUndefined();
    run(5);
    expect(overload.refusedShare).toBe(1);
    expect(overload.refusal()).toBeDefined();
    expect(noted.at(-1)).toMatchObject({ cause: "new connections", refusedShare: 1 });
    at.connectionsATurn = 0;
    run(5);
    expect(overload.refusedShare).toBe(0);
  });

  test("settles near its capacity under three times as much work", () => {
    const { overload, at, run } = overloadWith({ delayMs: 0, memoryShare: 0 });
    // Each of 300 requests a second takes 10 ms of the event loop, so a third of them can be served.
    const warmUpMs = 60_000;
    let [backlogMs, servedMs, earlierMs] = [0, 0, 0];
    const shares: number[] = [];
    while (at.nowMs < 2 * warmUpMs) {
      const passedMs = at.nowMs - earlierMs;
      earlierMs = at.nowMs;
      backlogMs += (1 - overload.refusedShare) * 3 * passedMs;
      const workedMs = Math.min(backlogMs, passedMs);
      backlogMs -= workedMs;
      at.delayMs = backlogMs;
      run(0.001);
      if (at.nowMs < warmUpMs) continue;
      servedMs += workedMs;
      shares.push(overload.refusedShare);
    }
    expect(servedMs).toBeGreaterThan(0.9 * warmUpMs);
    expect(Math.max(...shares) - Math.min(...shares)).toBeLessThan(0.5);
  });

  test("refuses by the memory above the limit, and names it as the cause", () => {
    const { overload, at, run, noted } = overloadWith({ delayMs: 0, memoryShare: 0.925 });
    run(0.5);
    expect(overload.refusedShare).toBeCloseTo(0.5);
    at.memoryShare = 0.97;
    run(0.5);
    expect(overload.refusal()).toBeDefined();
    expect(noted.at(-1)).toEqual({ cause: "memory", delayMs: 0, memoryShare: 0.97, refusedShare: 1 });
    at.memoryShare = 0.5;
    run(0.5);
    expect(overload.refusedShare).toBe(0);
  });

  test("refuses nothing where its limits are turned off", () => {
    const off = { eventLoopDelayMs: 0, memoryShare: 0 };
    const { overload, run } = overloadWith({ delayMs: 60_000, memoryShare: 1 }, off);
    run(60);
    expect(overload.refusedShare).toBe(0);
  });
});

test("The memory of this process is read.", () => {
  const share = memoryReader(memoryBytesFor(1))();
  expect(share).toBeGreaterThan(0);
  expect(share).toBeLessThan(1);
  expect(memoryReader(memoryBytesFor(1_000))()).toBeGreaterThan(share);
});

test("An organization has its share while it has none running, or less than half the average, and no other does.", () => {
  let refusal: ApiError | undefined;
  const work = new RunningWork({ refusal: () => refusal });
  const ends = Array.from({ length: 12 }, () => work.begin("org_a"));
  refusal = new ApiError("overloaded");
  expect(() => work.begin("org_a")).toThrow(refusal);
  // The averages are 12, 6.5, 7 and 7.5, and then 8.
  for (let running = 0; running < 4; running += 1) ends.push(work.begin("org_b"));
  expect(() => work.begin("org_b")).toThrow(refusal);
  for (const end of ends) end();
  for (const organization of ["org_a", "org_b"]) work.begin(organization)();
});
