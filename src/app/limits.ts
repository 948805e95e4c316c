import { randomUUID } from "node:crypto";
import type { Config } from "../config.ts";
import { LocalLimiter } from "../gateway/limits/local.ts";
import { SharedLimiter } from "../gateway/limits/shared.ts";
import type { RateLimiter } from "../gateway/limits.ts";
import { createOutage } from "../telemetry/outage.ts";
import { loadOptional } from "./optional-package.ts";
import type { StartOptions } from "./parts.ts";

/** Creates the limiter that the configuration asks for. Rejects with OperatorError if the client of Redis is not installed. */
export async function createLimits({ redis }: Config, { clock, log }: StartOptions): Promise<RateLimiter> {
  if (redis === null) return new LocalLimiter(clock);
  const { createClient } = await loadOptional("redis needs", "@redis/client", () => import("@redis/client"));
  const outage = createOutage({
    log,
    level: "warn",
    texts: {
      begins: "Redis cannot be reached: this process applies its share of the limits",
      lasts: "Redis still cannot be reached",
      ends: "Redis can be reached again: the limits are shared",
    },
    clock,
  });
  const limits = new SharedLimiter({
    createConnection: () =>
      createClient({
        url: redis,
        name: "tollgate",
        socket: { reconnectStrategy: false },
        disableOfflineQueue: true,
        maintNotifications: "disabled",
      }),
    node: randomUUID(),
    onFailure: ({ message }) => outage.failed({ reason: message }),
    onJoined: () => outage.succeeded(),
    clock,
  });
  await limits.start();
  return limits;
}
