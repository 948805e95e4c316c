import { describe } from "vitest";
import { LocalLimiter } from "../../src/gateway/limits/local.ts";
import { hasRedis, startNode } from "../support/redis.ts";
import { RedisServer } from "../support/redis-server.ts";
import { limiterContract } from "./contract.ts";

limiterContract("limits that a process counts by itself", async () => {
  let nowMs = Date.now();
  const limits = new LocalLimiter(() => nowMs);
  return {
    limits,
    elapse: async (ms) => {
      nowMs += ms;
    },
    stop: () => limits.stop(),
  };
});

describe.skipIf(!hasRedis)("with Redis", () => {
  limiterContract("limits that nodes share", async () => {
    const redis = await RedisServer.open();
    const { limits } = await startNode(redis);
    return {
      limits,
      elapse: (ms) => redis.elapse(ms),
      stop: async () => {
        await limits.stop();
        await redis.close();
      },
    };
  });
});
