import { inject } from "vitest";
import { SharedLimiter } from "../../src/gateway/limits/shared.ts";
import { clientOf } from "./redis-server.ts";

export const hasRedis = inject("hasRedis");

/** A limiter of a test, and what it reported. */
export interface TestNode {
  /** Its name in Redis. */
  node: string;
  limits: SharedLimiter;
  events: string[];
}

let nodesMade = 0;

/**
 * Starts a limiter that shares its limits in a Redis server. With a long timeout, a busy machine does not look like an
 * outage.
 */
export async function startNode({ url }: { url: string }, answerTimeoutMs = 20_000): Promise<TestNode> {
  const events: string[] = [];
  nodesMade += 1;
  const node = `node-${process.pid}-${nodesMade}`;
  const limits = new SharedLimiter({
    createConnection: () => clientOf(url),
    node,
    onFailure: ({ message }) => events.push(`failure: ${message}`),
    onJoined: () => events.push("joined"),
    clock: () => Date.now(),
    answerTimeoutMs,
  });
  await limits.start();
  return { node, limits, events };
}
