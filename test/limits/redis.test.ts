import fc from "fast-check";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { LocalLimiter } from "../../src/gateway/limits/local.ts";
import { decode, encode, type Message, SCRIPT } from "../../src/gateway/limits/script.ts";
import type { LimitEntry, LimitKey, RateLimiter } from "../../src/gateway/limits.ts";
import { hasRedis, startNode, type TestNode } from "../support/redis.ts";
import { RedisServer } from "../support/redis-server.ts";
import { admit, name, refusalOf } from "./contract.ts";

const LEASE_MS = 60_000;
const PATIENCE = { timeout: 60_000, interval: 20 };

describe.skipIf(!hasRedis)("nodes that share limits in Redis", () => {
  let redis: RedisServer;
  let nodes: TestNode[] = [];
  const start = async () => {
    const node = await startNode(redis);
    nodes.push(node);
    await expect.poll(() => isShared(node), PATIENCE).toBe(true);
    return node;
  };
  beforeAll(async () => {
    redis = await RedisServer.open();
  });
  afterEach(async () => {
    await Promise.all(nodes.map(({ limits }) => limits.stop()));
    nodes = [];
  });
  afterAll(() => redis?.close());

  const isShared = ({ limits }: TestNode) => limits.status().mode === "shared";
  const enter = ({ limits }: TestNode, limit: LimitKey) => admit(limits, { wanted: { concurrentRequests: [limit] } });

  test("admit exactly the limit together, at any concurrency", async () => {
    const pair = [await start(), await start()];
    const requests = [{ key: name("organization"), limit: 50 }];
    const concurrent = { key: name("model"), limit: 20 };
    const tokensPerMinute = [{ key: name("token"), limit: 300 }];
    const ofAll = async (work: (node: TestNode) => Promise<LimitEntry>) => {
      const outcomes = await Promise.allSettled(
        Array.from({ length: 200 }, (_, index) => work(pair[index % 2] as TestNode)),
      );
      return outcomes.filter(({ status }) => status === "fulfilled").length;
    };
    expect(await ofAll(({ limits }) => admit(limits, { requests }))).toBe(50);
    expect(await ofAll((node) => enter(node, concurrent))).toBe(20);
    expect(await ofAll(({ limits }) => admit(limits, { wanted: { tokens: 7, tokensPerMinute } }))).toBe(42);
  });

  test("take one round trip for a request, admitted or refused", async () => {
    const { limits } = await start();
    const token = { key: name("token"), limit: 100 };
    const requests = [token, { key: name("organization"), limit: 1000 }];
    const wanted = {
      tokensPerMinute: requests,
      tokensPerDay: [{ key: name("organization"), limit: 1000 }],
      concurrentRequests: requests,
    };
    const before = await redis.scripts();
    for (let index = 0; index < 40; index += 1) await admit(limits, { requests, wanted });
    for (let index = 0; index < 10; index += 1) await limits.begin(requests).counted();
    expect((await redis.scripts()) - before).toBe(50);
  });

  test("refuse a request of a window that is used up without a round trip", async () => {
    const { limits } = await start();
    const requests = [{ key: name("token"), limit: 1 }];
    await admit(limits, { requests });
    await refusalOf(() => admit(limits, { requests }));
    const before = await redis.scripts();
    for (let index = 0; index < 20; index += 1) {
      expect(await refusalOf(() => limits.begin(requests))).toMatchObject({
        code: "rate_limit_exceeded",
        headers: { "x-ratelimit-remaining-requests": "0" },
      });
    }
    expect(await redis.scripts()).toBe(before);
    const [{ key }] = requests as [LimitKey];
    expect(() => limits.begin([{ key, limit: 2 }])).not.toThrow();
  });

  test("count a request that is neither admitted nor refused", async () => {
    const { limits } = await start();
    const key = name("token");
    limits.begin([{ key, limit: 10 }]);
    await expect.poll(() => redis.send("HGET", `{tollgate}:requests:${key}`, "used"), PATIENCE).toBe("1");
  });

  test("release the place of a request for the others when it ends", async () => {
    const [first, second] = [await start(), await start()];
    const limit = { key: name("token"), limit: 1 };
    for (let turn = 0; turn < 50; turn += 1) {
      (await enter(first, limit)).leave(1);
      await first.limits.countRequest([{ key: name("token"), limit: 9 }]);
      (await enter(second, limit)).leave(1);
      await second.limits.countRequest([{ key: name("token"), limit: 9 }]);
    }
    expect(await redis.keys(`running:${limit.key}`)).toEqual([]);
  });

  test("leave nothing in Redis without an expiry", async () => {
    const node = await start();
    const key = name("organization");
    const limits = [{ key, limit: 100 }];
    await admit(node.limits, {
      requests: limits,
      wanted: { tokensPerMinute: limits, tokensPerDay: limits, concurrentRequests: limits },
    });
    const names = await redis.keys("*");
    expect(names).toEqual(expect.arrayContaining([`{tollgate}:requests:${key}`, `{tollgate}:running:${key}`]));
    for (const one of names) expect([one, await redis.send("PTTL", one)]).not.toEqual([one, -1]);
  });

  test("take over the places of a process that died, once its lease has ended", async () => {
    const [dead, alive] = [await start(), await start()];
    const limit = { key: name("model"), limit: 2 };
    await enter(dead, limit);
    await enter(dead, limit);
    await refusalOf(() => enter(alive, limit));
    // Its last sign of life is moved back by the lease.
    const [connection, seenMs] = String(await redis.send("HGET", "{tollgate}:nodes", dead.node)).split(" ");
    await redis.send("HSET", "{tollgate}:nodes", dead.node, `${connection} ${Number(seenMs) - LEASE_MS}`);
    await enter(alive, limit);
    await enter(alive, limit);
    await refusalOf(() => enter(alive, limit));
    // The process was only slow: it registers again, with the requests that it still runs.
    await dead.limits.countRequest([{ key: name("token"), limit: 1 }]);
    await expect.poll(() => isShared(dead), PATIENCE).toBe(true);
    expect(dead.events).toContain("failure: Redis has lost the registration");
    const running = (await redis.send("HVALS", `{tollgate}:running:${limit.key}`)) as string[];
    expect(running.map(Number)).toEqual([2, 2]);
  });

  test("free the places of a process that stops", async () => {
    const [first, second] = [await start(), await start()];
    const limit = { key: name("model"), limit: 1 };
    await enter(first, limit);
    await refusalOf(() => enter(second, limit));
    await first.limits.stop();
    await enter(second, limit);
    await expect.poll(() => second.limits.status().nodes, PATIENCE).toBe(1);
  });

  test("are not disturbed by messages of an earlier connection that Redis reads late", async () => {
    const limit = { key: name("model"), limit: 10 };
    const node = name("node");
    const sendAs = async (connection: number, purpose: Message["purpose"], running = 0) => {
      const changes = new Map(running === 0 ? [] : [[limit.key, running]]);
      const sender = { node, connection, leaseMs: LEASE_MS };
      const words = encode({ ...sender, purpose, steps: [], returns: [], running: changes, kept: [] });
      return decode(await redis.send("EVAL", SCRIPT, ...words), []);
    };
    expect(await sendAs(1, "join", 1)).toMatchObject({ outcomes: [] });
    expect(await sendAs(3, "join", 3)).toMatchObject({ outcomes: [] });
    expect(await sendAs(2, "join", 2)).toBeUndefined();
    for (const purpose of ["count", "beat", "leave"] as const) expect(await sendAs(1, purpose, 1)).toBeUndefined();
    const other = await start();
    for (let index = 3; index < 10; index += 1) await enter(other, limit);
    await refusalOf(() => enter(other, limit));
    expect(await sendAs(3, "leave")).toMatchObject({ nodes: 1 });
    await enter(other, limit);
  });

  test("decide like a limiter in process, whatever is asked of them", async () => {
    const pair = [await start(), await start()];
    const keys = ["token:a", "token:b", "organization:o", "model:m"];
    const step = fc.record({
      node: fc.nat(1),
      kind: fc.constantFrom("admit", "count", "leave"),
      which: fc.subarray(keys, { minLength: 1 }),
      requests: fc.integer({ min: 1, max: 8 }),
      tokens: fc.integer({ min: 1, max: 60 }),
      running: fc.integer({ min: 1, max: 4 }),
      used: fc.nat(60),
    });
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        run += 1;
        const ofRun = (list: string[], limit: number) => list.map((key) => ({ key: `${key}-${run}`, limit }));
        const model = new LocalLimiter(() => 1);
        const entries: [LimitEntry, LimitEntry][] = [];
        for (const { node, kind, which, requests, tokens, running, used } of steps) {
          const nodeLimits = (pair[node] as TestNode).limits;
          if (kind === "leave") {
            for (const entry of entries.splice(0, 1).flat()) entry.leave(used);
            // The next message of each node has the change.
            for (const { limits } of pair) await limits.countRequest([{ key: name("token"), limit: 9 }]);
            continue;
          }
          const ask = async (limits: RateLimiter) =>
            kind === "count"
              ? { counted: await limits.countRequest(ofRun(which, requests)) }
              : admit(limits, {
                  requests: ofRun(which, requests),
                  wanted: {
                    requests: ofRun(["model:n"], requests),
                    tokens,
                    tokensPerMinute: ofRun(which, 100),
                    tokensPerDay: ofRun(which.slice(1), 150),
                    concurrentRequests: ofRun(which, running),
                  },
                });
          const [real, expected] = await Promise.all([outcomeOf(() => ask(nodeLimits)), outcomeOf(() => ask(model))]);
          expect(real.seen).toEqual(expected.seen);
          if (real.entry !== undefined && expected.entry !== undefined) entries.push([real.entry, expected.entry]);
        }
        for (const entry of entries.flat()) entry.leave(0);
      }),
      { numRuns: 60 },
    );
  });
});

/** Returns what a caller sees, without times: those differ by the duration of the test. */
async function outcomeOf(ask: () => Promise<object>): Promise<{ seen: unknown; entry?: LimitEntry }> {
  const isTime = (name: string) => /reset|retry-after|^ratelimit$/.test(name);
  const withoutTime = (value: unknown) => {
    const text = JSON.stringify(value, (name, member) => (isTime(name) ? undefined : member));
    // A node may know another one of several limits that are used up.
    return text.replace(/Try again in \d+ s/, "").replace(/(requests per minute) of this \w+/, "$1");
  };
  try {
    const answer = await ask();
    return { seen: withoutTime(answer), ...("leave" in answer && { entry: answer as LimitEntry }) };
  } catch (error) {
    const { message, headers } = error as { message: string; headers: object };
    return { seen: withoutTime({ message, headers }) };
  }
}
