import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { LocalLimiter } from "./limits/local.ts";
import { type LimitEntry, rateLimitHeaders, windowUses } from "./limits.ts";

test("A window lasts a minute from its first use, and a clock that is set back does not extend it.", () => {
  let now = 1_000_000;
  const limits = new LocalLimiter(() => now);
  const use = (key: string) => limits.countRequest([{ key, limit: 10 }]);
  use("a");
  now += 30_000;
  use("b");
  now += 29_999;
  expect(use("a").remaining).toBe(8);
  now += 1;
  expect(use("a").remaining).toBe(9);
  expect(use("b").remaining).toBe(8);
  now -= 3_600_000;
  expect(use("a")).toMatchObject({ remaining: 9, resetSeconds: 60 });
});

test("Values of budgets that are not seen again leave no window behind.", () => {
  let now = 1_000_000;
  const limits = new LocalLimiter(() => now);
  const own = (kind: string) => [{ key: `${kind}:own`, limit: 1_000_000 }];
  const askAs = (value: string) => {
    const ofValue = [{ key: `budget:org_1:bud_1:${value}`, limit: 10 }];
    const uses = [...windowUses("requests", ofValue, 1), ...windowUses("tokens", [...own("token"), ...ofValue], 1)];
    const entry = limits.begin(own("token")).admit({ uses, tokens: 1, concurrent: ofValue }) as LimitEntry;
    entry.leave(1);
  };
  const minute = (name: number) => {
    for (let user = 0; user < 5_000; user += 1) askAs(`${name} ${user} ${"x".repeat(500)}`);
    now += 60_000;
  };
  minute(0);
  const before = usedHeapBytes();
  for (let name = 1; name <= 20; name += 1) minute(name);
  // The values of one minute have 5 MB.
  expect(usedHeapBytes() - before).toBeLessThan(10_000_000);
});

function usedHeapBytes(): number {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  return process.memoryUsage().heapUsed;
}

test("Limits are reported in both header families.", () => {
  const headers = rateLimitHeaders([
    { unit: "requests", limit: 600, remaining: 599, resetSeconds: 60, windowSeconds: 60 },
    { unit: "tokens", limit: 1000, remaining: 10, resetSeconds: 7, windowSeconds: 60 },
  ]);
  expect(headers).toEqual({
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-remaining-requests": "599",
    "x-ratelimit-reset-requests": "60s",
    "x-ratelimit-limit-tokens": "1000",
    "x-ratelimit-remaining-tokens": "10",
    "x-ratelimit-reset-tokens": "7s",
    "ratelimit-policy": '"requests";q=600;w=60, "tokens";q=1000;w=60',
    ratelimit: '"requests";r=599;t=60, "tokens";r=10;t=7',
  });
});
