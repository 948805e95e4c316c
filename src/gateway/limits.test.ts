import { expect, test } from "vitest";
import { ApiError } from "../errors.ts";
import { RateLimiter, rateLimitHeaders } from "./limits.ts";

const clock = () => Date.now();

function thrownBy(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error;
  }
  throw new Error("No error was thrown");
}

test("The request above the limit of requests per minute is refused with Retry-After.", () => {
  const limits = new RateLimiter(clock);
  const keys = [
    { key: "token:a", limit: 3 },
    { key: "organization:o", limit: 10 },
  ];
  const remaining = [];
  for (let index = 0; index < 3; index += 1) remaining.push(limits.countRequest(keys).remaining);
  expect(remaining).toEqual([2, 1, 0]);
  const refused = thrownBy(() => limits.countRequest(keys));
  expect(refused).toBeInstanceOf(ApiError);
  expect(refused).toMatchObject({ code: "rate_limit_exceeded", status: 429 });
  const seconds = Number((refused as ApiError).headers["retry-after"]);
  expect(seconds).toBeGreaterThanOrEqual(1);
  expect(seconds).toBeLessThanOrEqual(60);
  expect(limits.countRequest([{ key: "token:b", limit: 3 }])).toMatchObject({ remaining: 2 });
});

test("The tighter limit of a token and its organization is reported and enforced.", () => {
  const limits = new RateLimiter(clock);
  const of = (token: string) => [
    { key: token, limit: 5 },
    { key: "organization", limit: 2 },
  ];
  expect(limits.countRequest(of("a")).limit).toBe(2);
  limits.countRequest(of("b"));
  expect(thrownBy(() => limits.countRequest(of("c")))).toMatchObject({ code: "rate_limit_exceeded" });
});

test("Refused and unused tokens of a minute are returned.", () => {
  const limits = new RateLimiter(clock);
  const keys = [{ key: "token:a", limit: 100 }];
  const taken = limits.takeTokens("minute", keys, 80);
  expect(taken.state.remaining).toBe(20);
  expect(thrownBy(() => limits.takeTokens("minute", keys, 30))).toMatchObject({ code: "rate_limit_exceeded" });
  taken.giveBack(70);
  expect(limits.takeTokens("minute", keys, 90).state.remaining).toBe(0);
});

test("Unused tokens are not returned to a later window.", () => {
  let now = Date.now();
  const limits = new RateLimiter(() => now);
  const keys = [{ key: "token:a", limit: 100 }];
  const taken = limits.takeTokens("minute", keys, 50);
  now += 60_000;
  limits.takeTokens("minute", keys, 10);
  taken.giveBack(50);
  expect(limits.takeTokens("minute", keys, 1).state.remaining).toBe(89);
});

test("A window lasts a minute from its first use, and a clock that is set back does not extend it.", () => {
  let now = 1_000_000;
  const limits = new RateLimiter(() => now);
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

test("A request that exceeds the limit by itself is refused with x-should-retry: false.", () => {
  const limits = new RateLimiter(clock);
  const refused = thrownBy(() => limits.takeTokens("minute", [{ key: "token:a", limit: 100 }], 101));
  expect(refused).toMatchObject({ headers: { "x-should-retry": "false" } });
});

test("A daily limit is refused with the longest Retry-After and x-should-retry: false.", () => {
  const limits = new RateLimiter(clock);
  const keys = [{ key: "playground", limit: 100 }];
  limits.takeTokens("day", keys, 90);
  expect(thrownBy(() => limits.takeTokens("day", keys, 20))).toMatchObject({
    headers: { "retry-after": "60", "x-should-retry": "false" },
  });
});

test("A concurrent request above the limit is refused until another one has ended.", () => {
  const limits = new RateLimiter(clock);
  const keys = [{ key: "token:a", limit: 2 }];
  const leave = limits.enter(keys);
  limits.enter(keys);
  expect(() => limits.enter(keys)).toThrow(ApiError);
  leave();
  expect(() => limits.enter(keys)).not.toThrow();
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
