import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { MemoryRelease, makeCollect } from "./memory-release.ts";

const MIB = 1024 * 1024;

describe("memory is released", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test("after the start, and again when the heap has grown and no request has come for a minute", () => {
    const { state, release } = startRelease();
    vi.advanceTimersByTime(60_000);
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
    collect: () => {
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
