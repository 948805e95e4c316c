import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { requestBody } from "../bench/endpoints.ts";
import { EVENTS_DEFAULT, streamedEvents, UNSTREAMED_ANSWER } from "../bench/payload.ts";
import { allocationsIn, PRINTS_ALLOCATIONS } from "../bench/processes.ts";
import { makeOrganization, type ServiceProcess, startProcess } from "./support/service.ts";
import { startUpstream, type Upstream } from "./support/upstream.ts";

/**
 * The memory that the main thread allocates for a completion follows from what it does, and hardly depends on the machine
 * or on other load. So a limit on it finds a completion that does more work than before, where a limit on time could not.
 */
const KIB_PER_COMPLETION_MAX = { unstreamed: 165, streamed: 190 };

const PER_ROUND = 250;
/** Rounds by which the compiler has optimized the code that every completion runs. */
const ROUNDS_MAX = 12;

let upstream: Upstream;
let service: ServiceProcess;
let token: string;

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("unstreamed", ({ response }) => {
    response.writeHead(200, { "content-type": "application/json" }).end(UNSTREAMED_ANSWER);
  });
  upstream.behave("streamed", ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).end(streamedEvents(EVENTS_DEFAULT).join(""));
  });
  const most = 1_000_000_000;
  service = await startProcess({
    environment: PRINTS_ALLOCATIONS,
    config: {
      limits: { requestsPerMinute: most, tokensPerMinute: most, concurrentRequests: 10_000 },
      providers: [upstream.provider],
      models: [model("bench", "unstreamed"), model("bench-streamed", "streamed")],
    },
  });
  ({ token } = await makeOrganization(service, "1000"));
});

afterAll(async () => {
  await service.end();
  await upstream.close();
});

function model(id: string, name: string) {
  return {
    id,
    routes: [{ provider: "up", model: name }],
    price: { input: 1, output: 2 },
    contextWindow: 128_000,
    cutoffDate: "2026-01-01",
  };
}

async function allocatedBytes(): Promise<number> {
  const before = service.output().length;
  service.child.kill("SIGUSR2");
  for (;;) {
    const [bytes] = allocationsIn(service.output().slice(before));
    if (bytes !== undefined) return bytes;
    await sleep(10);
  }
}

/** Sends one request after the other: concurrent ones share batches, whose sizes depend on the load of the machine. */
async function complete(count: number, streamed: boolean): Promise<void> {
  for (let done = 0; done < count; done += 1) {
    const answer = await fetch(`${service.baseUrl}/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: requestBody("chat", streamed),
    });
    expect([answer.status, await answer.text()]).toEqual([
      200,
      expect.stringContaining(streamed ? "[DONE]" : "keeps count"),
    ]);
  }
}

/** Sends requests until those of a round allocate no more than the limit. Returns what each of the last round did. */
async function kibPerCompletion(streamed: boolean, kibMax: number): Promise<number> {
  let kib = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS_MAX && kib > kibMax; round += 1) {
    const before = await allocatedBytes();
    await complete(PER_ROUND, streamed);
    kib = ((await allocatedBytes()) - before) / PER_ROUND / 1_024;
  }
  return kib;
}

test.each(["unstreamed", "streamed"] as const)("An %s completion allocates no more than its limit.", async (kind) => {
  const kibMax = KIB_PER_COMPLETION_MAX[kind];
  expect(await kibPerCompletion(kind === "streamed", kibMax)).toBeLessThanOrEqual(kibMax);
});
