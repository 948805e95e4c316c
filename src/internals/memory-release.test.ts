import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { MemoryRelease, makeCollect } from "./memory-release.ts";

const MIB = 1024 * 1024;

describe("memory is released", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test("soon after the start, and again when the heap has grown and no request has come for a minute", () => {
    const { state, release } = startRelease();
    vi.advanceTimersByTime(5_000);
    expect(state.collections).toBe(1);
    vi.advanceTimersByTime(300_000);
    expect(state.collections).toBe(1);
    Object.assign(state, { running: 1, begun: 1, heapBytes: 200 * MIB });
    vi.advanceTimersByTime(300_000);
    expect(state.collections).toBe(1);
    state.running = 0;
    for (let minute = 0; minute < 5; minute += 1) {
      state.begun += 1;
      vi.advanceTimersByTime(60_000);
    }
    expect(state.collections).toBe(1);
    vi.advanceTimersByTime(60_000);
    expect(state.collections).toBe(2);
    release.stop();
    state.heapBytes = 200 * MIB;
    vi.advanceTimersByTime(300_000);
    expect(state.collections).toBe(2);
  });

  test("not after a start that requests followed at once", () => {
    const { state } = startRelease();
    state.begun = 1;
    vi.advanceTimersByTime(60_000);
    expect(state.collections).toBe(0);
    vi.advanceTimersByTime(60_000);
    expect(state.collections).toBe(1);
  });
});

function startRelease() {
  const state = { running: 0, begun: 0, heapBytes: 70 * MIB, collections: 0 };
  const release = new MemoryRelease({
    requests: () => state,
    heapBytes: () => state.heapBytes,
    release: () => {
      state.collections += 1;
      state.heapBytes = 40 * MIB;
    },
  });
  release.start();
  return { state, release };
}

test("a collection frees what is no longer referenced", async () => {
  const collect = makeCollect();
  const unreachable = makeUnreachable();
  // A WeakRef keeps its target until the turn of the event loop in which it was made has ended.
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  expect(unreachable.deref()).toBeUndefined();
});

/** A reference to an array that nothing else references. */
function makeUnreachable(): WeakRef<object> {
  return new WeakRef(Array.from({ length: 1_000 }, (_, index) => ({ index })));
}

/** Fills the heap, empties it and stays idle. */
const IDLE_PROCESS = `
import { runInNewContext } from "node:vm";
import { setFlagsFromString } from "node:v8";
let filling = Array.from({ length: 1_000_000 }, (_, index) => ({ index }));
filling = undefined;
setFlagsFromString("--expose-gc");
runInNewContext("gc")();
setInterval(() => {}, 1_000);`;
const DISABLE = `
import { disableIdleCollections } from ${JSON.stringify(new URL("memory-release.ts", import.meta.url))};
disableIdleCollections();`;

test("a process that is idle is not collected by V8 itself once that is turned off", async () => {
  const untouched = startIdle(IDLE_PROCESS);
  const disabled = startIdle(`${DISABLE}${IDLE_PROCESS}`);
  try {
    await expect.poll(untouched.idleCollections, { timeout: 120_000 }).toBe(2);
    await expect.poll(disabled.collections, { timeout: 120_000 }).toBeGreaterThan(0);
    expect(disabled.idleCollections()).toBe(0);
  } finally {
    await Promise.all([untouched.end(), disabled.end()]);
  }
}, 300_000);

/** Starts a process that reports its collections, and makes those of idle processes sooner than by default. */
function startIdle(code: string) {
  const sooner = ["--memory-reducer-delay-ms=100", "--gc-memory-reducer-start-delay-ms=100"];
  const words = ["--trace-gc", ...sooner, "--input-type=module", "--eval", code];
  const child = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (text: Buffer) => {
    output += text.toString();
  });
  return {
    collections: () => output.split("Mark-Compact").length - 1,
    idleCollections: () => output.split("Mark-Compact (reduce)").length - 1,
    async end() {
      child.kill();
      await once(child, "exit");
    },
  };
}
