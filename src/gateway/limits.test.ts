import { expect, test } from "vitest";
import { LocalLimiter } from "./limits/local.ts";
import { rateLimitHeaders } from "./limits.ts";

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
