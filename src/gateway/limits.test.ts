import { expect, test } from "vitest";
import { ApiError } from "../errors.ts";
import { Limits, rateLimitHeaders } from "./limits.ts";

const clock = () => Date.now();

test("requests a minute: the limit is served, one more is refused and told when to come back", async () => {
  const limits = new Limits(clock);
  const keys = [
    { key: "token:a", limit: 3 },
    { key: "organization:o", limit: 10 },
  ];
  const remaining = [];
  for (let index = 0; index < 3; index += 1) remaining.push((await limits.countRequest(keys)).remaining);
  expect(remaining).toEqual([2, 1, 0]);
  const refused = await limits.countRequest(keys).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(ApiError);
  expect(refused).toMatchObject({ code: "rate_limit_exceeded", status: 429 });
  const seconds = Number((refused as ApiError).headers["retry-after"]);
  expect(seconds).toBeGreaterThanOrEqual(1);
  expect(seconds).toBeLessThanOrEqual(60);
  await expect(limits.countRequest([{ key: "token:b", limit: 3 }])).resolves.toMatchObject({ remaining: 2 });
});

test("a token's own limit and its organization's: the tighter is told and holds", async () => {
  const limits = new Limits(clock);
  const of = (token: string) => [
    { key: token, limit: 5 },
    { key: "organization", limit: 2 },
  ];
  expect((await limits.countRequest(of("a"))).limit).toBe(2);
  await limits.countRequest(of("b"));
  await expect(limits.countRequest(of("c"))).rejects.toMatchObject({ code: "rate_limit_exceeded" });
});

test("tokens a minute: what is refused or unused is given back", async () => {
  const limits = new Limits(clock);
  const keys = [{ key: "token:a", limit: 100 }];
  const taken = await limits.takeTokens("minute", keys, 80);
  expect(taken.standing.remaining).toBe(20);
  await expect(limits.takeTokens("minute", keys, 30)).rejects.toMatchObject({ code: "rate_limit_exceeded" });
  await taken.giveBack(70);
  expect((await limits.takeTokens("minute", keys, 90)).standing.remaining).toBe(0);
});

test("tokens are not given back to a window that began since", async () => {
  let now = Date.now();
  const limits = new Limits(() => now);
  const taken = await limits.takeTokens("minute", [{ key: "token:a", limit: 100 }], 50);
  now += 61_000;
  await taken.giveBack(50);
  now -= 61_000;
  expect((await limits.takeTokens("minute", [{ key: "token:a", limit: 100 }], 10)).standing.remaining).toBe(40);
});

test("a request that alone is too large is told not to come back", async () => {
  const limits = new Limits(clock);
  const refused = limits.takeTokens("minute", [{ key: "token:a", limit: 100 }], 101);
  await expect(refused).rejects.toMatchObject({ headers: { "x-should-retry": "false" } });
});

test("a limit of a day names the longest wait that clients keep, and tells not to retry", async () => {
  const limits = new Limits(clock);
  const keys = [{ key: "playground", limit: 100 }];
  await limits.takeTokens("day", keys, 90);
  await expect(limits.takeTokens("day", keys, 20)).rejects.toMatchObject({
    headers: { "retry-after": "60", "x-should-retry": "false" },
  });
});

test("requests at once: a place is taken, refused, and free again", async () => {
  const limits = new Limits(clock);
  const keys = [{ key: "token:a", limit: 2 }];
  const leave = limits.enter(keys);
  limits.enter(keys);
  expect(() => limits.enter(keys)).toThrow(ApiError);
  leave();
  expect(() => limits.enter(keys)).not.toThrow();
});

test("both header families", () => {
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
