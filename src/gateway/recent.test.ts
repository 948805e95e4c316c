import fc from "fast-check";
import { expect, test } from "vitest";
import { RecentMap, RollingCount } from "./recent.ts";

const LIMITS = { idleMs: 1_000, entriesMax: 3 };

/** Makes a map with an entry for each key, which are set one after another, and a millisecond apart. */
function mapOf(...keys: string[]): RecentMap<string> {
  const map = new RecentMap<string>(LIMITS);
  for (const [atMs, key] of keys.entries()) map.set(key, `value of ${key}`, atMs);
  return map;
}

test("An entry is removed when it was not used for the idle time; a read counts as a use.", () => {
  const map = mapOf("a", "b");
  expect(map.get("a", 999)).toBe("value of a");
  expect(map.values(1_000)).toEqual(["value of b", "value of a"]);
  expect(map.get("b", 1_001)).toBeUndefined();
  expect(map.size).toBe(1);
  expect(map.values(1_999)).toEqual([]);
});

test("Beyond the greatest number of entries, those are removed that were not used for longest.", () => {
  const map = mapOf("a", "b", "c");
  map.get("a", 3);
  map.set("d", "value of d", 3);
  expect(map.values(3)).toEqual(["value of c", "value of a", "value of d"]);
  for (let count = 0; count < 100_000; count += 1) map.set(`key ${count}`, "value", 4);
  expect(map.size).toBe(3);
});

test("All entries are removed when the clock was set back to before their use.", () => {
  const map = mapOf("a", "b");
  expect(map.get("a", -1)).toBeUndefined();
  expect(map.size).toBe(0);
});

test("An entry can be replaced and deleted.", () => {
  const map = mapOf("a", "b");
  map.set("a", "other", 2);
  map.delete("b");
  expect(map.values(2)).toEqual(["other"]);
  map.clear();
  expect(map.size).toBe(0);
});

test("A rolling count is the number of events within its spans.", () => {
  const times = fc.array(fc.integer({ min: 0, max: 3_000 }), { maxLength: 100 });
  fc.assert(
    fc.property(times, fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 500 }), (waits, spans, spanMs) => {
      const count = new RollingCount(spans, spanMs);
      const seen: number[] = [];
      let nowMs = 0;
      for (const waitMs of waits) {
        nowMs += waitMs;
        seen.push(nowMs);
        count.add(nowMs);
        const first = (Math.floor(nowMs / spanMs) - spans + 1) * spanMs;
        expect(count.total(nowMs)).toBe(seen.filter((ms) => ms >= first).length);
      }
    }),
  );
});
