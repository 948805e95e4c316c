import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type LimitEntry,
  type LimitKey,
  type LimitState,
  type RateLimiter,
  type WantedLimits,
  windowUses,
} from "../../src/gateway/limits.ts";

/** A limiter and the passage of its time. */
export interface LimiterSubject {
  limits: RateLimiter;
  elapse(ms: number): Promise<void>;
  stop(): Promise<void>;
}

/** Makes a name that no other case uses. */
let named = 0;
export function name(kind: string): string {
  named += 1;
  return `${kind}:${named}`;
}

export interface Asked {
  /** Requests per minute, counted before the body is read. */
  requests?: readonly LimitKey[];
  wanted?: Terms;
}

interface Terms {
  requests?: readonly LimitKey[];
  tokens?: number;
  tokensPerMinute?: readonly LimitKey[];
  tokensPerDay?: readonly LimitKey[];
  concurrentRequests?: readonly LimitKey[];
}

function wantedOf(terms: Terms): WantedLimits {
  const { tokens = 1, requests = [], tokensPerDay = [], concurrentRequests: concurrent = [] } = terms;
  const { tokensPerMinute = [{ key: name("token"), limit: FREE }] } = terms;
  const ofTokens = [
    ...windowUses("tokens", tokensPerMinute, tokens),
    ...windowUses("tokensOfDay", tokensPerDay, tokens),
  ];
  return { uses: [...windowUses("requests", requests, 1), ...ofTokens], tokens, concurrent };
}

const FREE = 1_000_000;

/** Sends a request through all steps. */
export async function admit(limits: RateLimiter, { requests, wanted = {} }: Asked): Promise<LimitEntry> {
  const free = [{ key: name("token"), limit: FREE }];
  const limited = limits.begin(requests ?? free);
  return limited.admit(wantedOf(wanted));
}

export async function refusalOf(work: () => unknown): Promise<unknown> {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error("Nothing was refused");
}

const REFUSED = { code: "rate_limit_exceeded", status: 429 };

/** The limiter of a suite, once it is open. */
class Subject {
  opened: LimiterSubject | undefined;

  get limits(): RateLimiter {
    if (this.opened === undefined) throw new Error("The limiter is not open");
    return this.opened.limits;
  }

  async elapse(ms: number): Promise<void> {
    await this.opened?.elapse(ms);
  }

  async count(keys: readonly LimitKey[]): Promise<LimitState> {
    return this.limits.countRequest(keys);
  }
}

/** The tests that every limiter passes. */
export function limiterContract(title: string, open: () => Promise<LimiterSubject>): void {
  describe(title, () => {
    const subject = new Subject();
    beforeAll(async () => {
      subject.opened = await open();
    });
    afterAll(() => subject.opened?.stop());
    requestCases(subject);
    tokenCases(subject);
    windowCases(subject);
    concurrencyCases(subject);
  });
}

function requestCases(subject: Subject): void {
  test("the request above the limit of requests per minute is refused, and names the limit", async () => {
    const keys = [
      { key: name("token"), limit: 3 },
      { key: name("organization"), limit: 10 },
    ];
    const remaining: number[] = [];
    for (let index = 0; index < 3; index += 1) remaining.push((await subject.count(keys)).remaining);
    expect(remaining).toEqual([2, 1, 0]);
    expect(await refusalOf(() => subject.count(keys))).toMatchObject({
      ...REFUSED,
      message: expect.stringMatching(/^Rate limit reached for requests per minute of this token: limit 3\. Try again/),
      headers: {
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": expect.stringMatching(/^(60|[1-5]?\d)s$/),
        "retry-after": expect.stringMatching(/^(60|[1-5]?\d)$/),
        "ratelimit-policy": '"requests";q=3;w=60',
        ratelimit: expect.stringMatching(/^"requests";r=0;t=\d+$/),
      },
    });
  });

  test("a request counts once, whether it is asked for its count, admitted, or both", async () => {
    const keys = [{ key: name("token"), limit: 10 }];
    const limited = subject.limits.begin(keys);
    expect((await limited.counted()).remaining).toBe(9);
    expect((await limited.counted()).remaining).toBe(9);
    expect((await limited.admit(wantedOf({}))).requestLimit.remaining).toBe(9);
    expect((await admit(subject.limits, { requests: keys })).requestLimit.remaining).toBe(8);
  });

  test("a refused request counts for none of its limits", async () => {
    const organization = { key: name("organization"), limit: 3 };
    const token = { key: name("token"), limit: 1 };
    await subject.count([token, organization]);
    for (let index = 0; index < 5; index += 1) await refusalOf(() => subject.count([token, organization]));
    expect((await subject.count([organization])).remaining).toBe(1);
  });

  test("the tighter limit of a token, its organization and the model is reported and enforced", async () => {
    const organization = { key: name("organization"), limit: 9 };
    const model = { key: name("model"), limit: 2 };
    const ask = () =>
      admit(subject.limits, {
        requests: [{ key: name("token"), limit: 5 }, organization],
        wanted: { requests: [model] },
      });
    expect((await ask()).requestLimit).toMatchObject({ limit: 2, remaining: 1 });
    await ask();
    expect(await refusalOf(ask)).toMatchObject({
      ...REFUSED,
      message: expect.stringContaining("requests per minute of this model: limit 2."),
    });
  });
}

function tokenCases(subject: Subject): void {
  test("a request that its tokens refuse still counts as a request", async () => {
    const requests = [{ key: name("token"), limit: 2 }];
    const wanted = { tokens: 11, tokensPerMinute: [{ key: name("token"), limit: 10 }] };
    await refusalOf(() => admit(subject.limits, { requests, wanted }));
    expect((await subject.count(requests)).remaining).toBe(0);
  });

  test("unused tokens are returned, and a refusal states what remains", async () => {
    const tokensPerMinute = [{ key: name("organization"), limit: 100 }];
    const ask = (tokens: number) => admit(subject.limits, { wanted: { tokens, tokensPerMinute } });
    const entry = await ask(80);
    expect(entry.tokenLimit).toMatchObject({ unit: "tokens", limit: 100, remaining: 20, windowSeconds: 60 });
    expect(await refusalOf(() => ask(30))).toMatchObject({
      ...REFUSED,
      message: expect.stringContaining("tokens per minute of this organization: limit 100. Try again in"),
      headers: { "x-ratelimit-remaining-tokens": "20" },
    });
    entry.leave(10);
    expect((await ask(90)).tokenLimit.remaining).toBe(0);
  });

  test("an answer that used more than was taken changes nothing further", async () => {
    const tokensPerMinute = [{ key: name("token"), limit: 100 }];
    (await admit(subject.limits, { wanted: { tokens: 10, tokensPerMinute } })).leave(50);
    expect((await admit(subject.limits, { wanted: { tokens: 1, tokensPerMinute } })).tokenLimit.remaining).toBe(89);
  });
}

function concurrencyCases(subject: Subject): void {
  test("a concurrent request above the limit is refused until another one has ended, and takes no tokens", async () => {
    const concurrentRequests = [{ key: name("model"), limit: 2 }];
    const tokensPerMinute = [{ key: name("token"), limit: 100 }];
    const ask = () => admit(subject.limits, { wanted: { tokens: 10, tokensPerMinute, concurrentRequests } });
    const entry = await ask();
    await ask();
    expect(await refusalOf(ask)).toMatchObject({
      ...REFUSED,
      message: "Rate limit reached for concurrent requests of this model: limit 2. Try again when one has ended.",
      headers: { "retry-after": "1" },
    });
    entry.leave(10);
    expect((await ask()).tokenLimit.remaining).toBe(70);
  });

  test("an export above the limit is refused until another one has ended", async () => {
    const limit = { key: name("exports"), limit: 1 };
    const leave = subject.limits.enterExport(limit);
    expect(await refusalOf(() => subject.limits.enterExport(limit))).toMatchObject({
      message: "Rate limit reached for exports at once: limit 1. Try again when one has ended.",
    });
    leave();
    expect(() => subject.limits.enterExport(limit)).not.toThrow();
  });

  test("a hundred requests at once are admitted up to the limit, exactly", async () => {
    const requests = [{ key: name("organization"), limit: 37 }];
    const outcomes = await Promise.allSettled(
      Array.from({ length: 100 }, async () => admit(subject.limits, { requests })),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(37);
  });
}

function windowCases(subject: Subject): void {
  test("unused tokens are not returned to a later window", async () => {
    const tokensPerMinute = [{ key: name("token"), limit: 100 }];
    const ask = (tokens: number) => admit(subject.limits, { wanted: { tokens, tokensPerMinute } });
    const entry = await ask(50);
    await subject.elapse(60_000);
    await ask(10);
    entry.leave(0);
    expect((await ask(1)).tokenLimit.remaining).toBe(89);
  });

  test("a window lasts a minute from its first use", async () => {
    const first = [{ key: name("token"), limit: 10 }];
    const second = [{ key: name("token"), limit: 10 }];
    await subject.count(first);
    await subject.elapse(30_000);
    await subject.count(second);
    await subject.elapse(25_000);
    expect((await subject.count(first)).remaining).toBe(8);
    await subject.elapse(5_000);
    expect((await subject.count(first)).remaining).toBe(9);
    expect((await subject.count(second)).remaining).toBe(8);
  });

  test("a request that exceeds the limit by itself is refused with x-should-retry: false", async () => {
    const wanted = { tokens: 101, tokensPerMinute: [{ key: name("token"), limit: 100 }] };
    expect(await refusalOf(() => admit(subject.limits, { wanted }))).toMatchObject({
      message: expect.stringContaining("The request alone counts 101"),
      headers: { "x-should-retry": "false" },
    });
  });

  test("a daily limit is refused with the longest Retry-After, and takes nothing of the minute", async () => {
    const minute = { key: name("token"), limit: 1000 };
    const day = { key: name("organization"), limit: 100 };
    const ask = (tokens: number) =>
      admit(subject.limits, { wanted: { tokens, tokensPerMinute: [minute], tokensPerDay: [day] } });
    expect((await ask(90)).tokenLimit).toMatchObject({ limit: 100, remaining: 10, windowSeconds: 86_400 });
    expect(await refusalOf(() => ask(20))).toMatchObject({
      message: expect.stringContaining("tokens per day of this organization: limit 100."),
      headers: { "retry-after": "60", "x-should-retry": "false" },
    });
    const { tokenLimit } = await admit(subject.limits, { wanted: { tokens: 1, tokensPerMinute: [minute] } });
    expect(tokenLimit.remaining).toBe(909);
  });
}
