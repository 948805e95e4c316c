import { makeOrganization, type ServiceProcess, startProcess } from "../test/support/service.ts";
import { Peer } from "./peer.ts";
import { MEMORY_SETTINGS, NODE_FLAGS } from "./tollgate.ts";

/** A service whose model `open` has an upstream in a process of its own, and a client that asks for its health. */
export interface OpenService extends AsyncDisposable {
  service: ServiceProcess;
  token: string;
  health: Peer;
}

/**
 * Starts a service with limits that no bench reaches. `role` is what the upstream does, see `stream-peers.ts`. The delay of
 * the event loop above which work is refused is the service's own default, unless it is given; 0 refuses nothing. `probe` says
 * how its health is asked for.
 */
export async function startOpenService(
  role: "upstream" | "answers",
  everyMs: string,
  { eventLoopDelayMs, probe = "health" }: { eventLoopDelayMs?: number | undefined; probe?: "health" | "probes" } = {},
): Promise<OpenService> {
  const upstream = new Peer(role, everyMs);
  const port = await upstream.line();
  const service = await startProcess({
    environment: { ...MEMORY_SETTINGS, NODE_OPTIONS: NODE_FLAGS.join(" ") },
    config: {
      // Stated, because the services of the tests refuse nothing.
      server: { overload: eventLoopDelayMs === undefined ? {} : { eventLoopDelayMs } },
      log: { level: "warn" },
      limits: { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 1_000_000 },
      providers: [{ id: "up", kind: "openai-compatible", baseUrl: `http://127.0.0.1:${port}/v1`, apiKey: "bench" }],
      models: [
        {
          id: "open",
          routes: [{ provider: "up", model: "upstream-model" }],
          price: { input: 1, output: 2 },
          contextWindow: 128_000,
        },
      ],
    },
  });
  const health = new Peer(probe, service.url);
  const { token } = await makeOrganization(service, "1000000");
  return {
    service,
    token,
    health,
    async [Symbol.asyncDispose]() {
      health.end();
      await service.end("SIGKILL");
      upstream.end();
    },
  };
}
