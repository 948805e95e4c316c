import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { LimitEntry, LimitKey } from "../../src/gateway/limits.ts";
import { hasRedis, startNode, type TestNode } from "../support/redis.ts";
import { RedisServer } from "../support/redis-server.ts";
import { admit, name, refusalOf } from "./contract.ts";

/** As short as in a service, so that an outage is noticed. */
const ANSWER_TIMEOUT_MS = 500;
const PATIENCE = { timeout: 60_000, interval: 20 };

describe.skipIf(!hasRedis)("while Redis is away, a node", () => {
  let redis: RedisServer;
  let nodes: TestNode[];
  const start = async () => {
    const node = await startNode(redis, ANSWER_TIMEOUT_MS);
    nodes.push(node);
    return node;
  };
  const startPair = async (): Promise<[TestNode, TestNode]> => {
    const pair: [TestNode, TestNode] = [await start(), await start()];
    await hasMode("shared");
    // Each answer of Redis has the number of nodes.
    for (const { limits } of pair) await limits.countRequest([{ key: name("token"), limit: 1 }]);
    return pair;
  };
  beforeEach(async () => {
    nodes = [];
    redis = await RedisServer.open();
  });
  afterEach(async () => {
    redis.signal("SIGCONT");
    await Promise.all(nodes.map(({ limits }) => limits.stop()));
    await redis.close();
  });

  const hasMode = (mode: "shared" | "local") =>
    expect.poll(() => nodes.map(({ limits }) => limits.status().mode), PATIENCE).toEqual(nodes.map(() => mode));
  const enter = ({ limits }: TestNode, limit: LimitKey) => admit(limits, { wanted: { concurrentRequests: [limit] } });

  test("applies its share of each limit, and shares it again when Redis is back", async () => {
    const [first, second] = await startPair();
    await redis.kill();
    await hasMode("local");
    const requests = [{ key: name("token"), limit: 9 }];
    for (const { limits } of [first, second]) {
      for (let index = 0; index < 4; index += 1) {
        const { requestLimit } = await admit(limits, { requests });
        expect(requestLimit).toMatchObject({ limit: 4, remaining: 3 - index });
      }
      expect(await refusalOf(() => limits.begin(requests))).toMatchObject({
        headers: { "x-ratelimit-limit-requests": "4", ratelimit: expect.stringContaining('"requests";r=0;t=') },
      });
      expect(limits.partOf(1)).toBe(1);
    }
    await redis.start();
    await hasMode("shared");
    const later = [{ key: name("token"), limit: 3 }];
    await admit(first.limits, { requests: later });
    expect((await admit(second.limits, { requests: later })).requestLimit).toMatchObject({ limit: 3, remaining: 1 });
  });

  test("counts what it admitted before towards its share", async () => {
    const [first] = await startPair();
    const requests = [{ key: name("organization"), limit: 10 }];
    const places = { key: name("model"), limit: 4 };
    for (let index = 0; index < 5; index += 1) await admit(first.limits, { requests });
    await enter(first, places);
    await redis.kill();
    await hasMode("local");
    await refusalOf(() => admit(first.limits, { requests }));
    await enter(first, places);
    expect(await refusalOf(() => enter(first, places))).toMatchObject({
      message: "Rate limit reached for concurrent requests of this model: limit 2. Try again when one has ended.",
    });
  });

  test("answers the requests that Redis does not, and those that follow without waiting", async () => {
    const node = await start();
    redis.signal("SIGSTOP");
    const requests = [{ key: name("token"), limit: 100 }];
    const waiting = await Promise.all(Array.from({ length: 20 }, async () => admit(node.limits, { requests })));
    expect(waiting).toHaveLength(20);
    await hasMode("local");
    expect(node.events).toContain("failure: no answer within 500 ms");
    expect((await admit(node.limits, { requests })).requestLimit.limit).toBe(100);
    redis.signal("SIGCONT");
    await hasMode("shared");
  });

  test("registers its concurrent requests again after a pause of Redis, each once", async () => {
    const [first, second] = await startPair();
    const limit = { key: name("model"), limit: 10 };
    const entries = [await enter(first, limit), await enter(second, limit)];
    redis.signal("SIGSTOP");
    // Redis reads these when it continues: their nodes have entered them by themselves.
    entries.push(...(await Promise.all([enter(first, limit), enter(second, limit), enter(first, limit)])));
    await hasMode("local");
    entries.shift()?.leave(1);
    redis.signal("SIGCONT");
    await hasMode("shared");
    await expect.poll(() => runningAmong(redis, limit), PATIENCE).toBe(4);
    for (let index = 4; index < 10; index += 1) entries.push(await enter(second, limit));
    await refusalOf(() => enter(first, limit));
    for (const entry of entries) entry.leave(1);
    await expect.poll(() => runningAmong(redis, limit), PATIENCE).toBe(0);
  });

  test("registers its concurrent requests in an empty Redis", async () => {
    const [first, second] = await startPair();
    const limit = { key: name("token"), limit: 3 };
    const entries: LimitEntry[] = [await enter(first, limit), await enter(second, limit)];
    await redis.kill();
    await hasMode("local");
    entries.shift()?.leave(1);
    entries.push(await enter(first, limit));
    await redis.start();
    await hasMode("shared");
    expect(await runningAmong(redis, limit)).toBe(2);
    entries.push(await enter(first, limit));
    await refusalOf(() => enter(second, limit));
    for (const entry of entries) entry.leave(1);
    await expect.poll(() => runningAmong(redis, limit), PATIENCE).toBe(0);
  });

  test("notices that Redis has lost its data", async () => {
    const node = await start();
    const limit = { key: name("token"), limit: 2 };
    const entry = await enter(node, limit);
    await redis.send("FLUSHALL");
    await enter(node, limit);
    await hasMode("shared");
    expect(await runningAmong(redis, limit)).toBe(2);
    await redis.send("SCRIPT", "FLUSH");
    await refusalOf(() => enter(node, limit));
    await hasMode("shared");
    entry.leave(1);
    await expect.poll(() => runningAmong(redis, limit), PATIENCE).toBe(1);
    expect(node.events.filter((event) => event === "joined")).toHaveLength(3);
  });

  test("starts with a tenth of each limit if it never reached Redis, and joins when Redis is there", async () => {
    await redis.kill();
    const node = await start();
    expect(node.limits.status()).toEqual({ mode: "local", nodes: 10 });
    expect(node.events).toEqual([expect.stringMatching(/^failure: .*ECONNREFUSED/)]);
    const requests = [{ key: name("token"), limit: 20 }];
    expect((await admit(node.limits, { requests })).requestLimit).toMatchObject({ limit: 2, remaining: 1 });
    await redis.start();
    await hasMode("shared");
    expect(node.limits.status()).toEqual({ mode: "shared", nodes: 1 });
  });

  test("starts if Redis accepts connections and does not answer", async () => {
    redis.signal("SIGSTOP");
    const node = await start();
    expect(node.limits.status().mode).toBe("local");
    redis.signal("SIGCONT");
    await hasMode("shared");
  });

  test("keeps its concurrent requests exact through many outages", async () => {
    const [first, second] = await startPair();
    const limit = { key: name("organization"), limit: 1_000_000 };
    const entries: LimitEntry[] = [];
    let isOver = false;
    const client = async (node: TestNode, index: number) => {
      while (!isOver) {
        const entry = await enter(node, limit);
        if (index === 0 && entries.length < 50) entries.push(entry);
        else entry.leave(1);
        await new Promise((resolve) => setTimeout(resolve, index));
      }
    };
    const clients = Promise.all(
      [first, second].flatMap((node) => Array.from({ length: 5 }, (_, at) => client(node, at))),
    );
    for (let turn = 0; turn < 3; turn += 1) {
      redis.signal("SIGSTOP");
      await hasMode("local");
      redis.signal("SIGCONT");
      await hasMode("shared");
      await redis.kill();
      await hasMode("local");
      await redis.start();
      await hasMode("shared");
    }
    isOver = true;
    await clients;
    await expect.poll(() => runningAmong(redis, limit), PATIENCE).toBe(entries.length);
    for (const entry of entries) entry.leave(1);
    await expect.poll(() => runningAmong(redis, limit), PATIENCE).toBe(0);
  });

  test("reports a wrong password without showing it", async () => {
    const locked = await RedisServer.open({ password: "right-secret" });
    try {
      const node = await startNode({ url: locked.url.replace("right-", "wrong-") });
      nodes.push(node);
      expect(node.events).toEqual([expect.stringContaining("WRONGPASS")]);
      expect(node.events.join()).not.toContain("secret");
      const other = await startNode(locked);
      nodes.push(other);
      expect(other.limits.status().mode).toBe("shared");
    } finally {
      await Promise.all(nodes.splice(0).map(({ limits }) => limits.stop()));
      await locked.close();
    }
  });
});

/** Returns the concurrent requests of the registered connections. */
async function runningAmong(redis: RedisServer, { key }: LimitKey): Promise<number> {
  const [nodes, counts] = await Promise.all(["nodes", `running:${key}`].map((one) => redis.hash(`{tollgate}:${one}`)));
  const live = new Set(Object.entries(nodes ?? {}).map(([node, text]) => `${node} ${text.split(" ")[0]}`));
  const ofLive = Object.entries(counts ?? {}).filter(([connection]) => live.has(connection));
  return ofLive.reduce((sum, [, count]) => sum + Number(count), 0);
}
