import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeOrganization, type Organization, type ServiceProcess, send, startProcess } from "../support/service.ts";
import { answering, breaking, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

/** Length of a trial. Without shares, a circuit that one organization opened would refuse most of it. */
const TRIAL_MS = 6_000;

let upstream: Upstream;
let service: ServiceProcess;

beforeAll(async () => {
  upstream = await startUpstream();
  const answer = answering({ words: ["fine"], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } });
  for (const model of ["single", "first", "second"]) {
    upstream.behave(model, (request) => {
      const messages = JSON.stringify(request.body.messages);
      if (messages.includes("break")) return breaking(request);
      if (!messages.includes("fail")) return answer(request);
      sendJson(request.response, 500, { error: { message: "no" } });
    });
  }
  const route = (model: string) => ({ provider: "up", model });
  const price = { input: 1, output: 1 };
  service = await startProcess({
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000 },
      providers: [upstream.provider],
      models: [
        { id: "single", price, routes: [route("single")] },
        { id: "pair", price, routes: [route("first"), route("second")] },
      ],
    },
  });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const ask = async ({ token }: Organization, model: string, content: string, stream = false) => {
  const body = { model, messages: [{ role: "user", content }], max_tokens: 4, stream };
  const answer = await send(service, "/v1/chat/completions", token, body);
  const text = await answer.text();
  return text.includes('"error"') && answer.ok ? "broken" : answer.status;
};

type Result = number | "broken";

/** Sends requests at a rate until the time is over, and returns their statuses. */
async function statusesOf(everyMs: number, request: () => Promise<Result>): Promise<Result[]> {
  const endsAtMs = performance.now() + TRIAL_MS;
  const statuses: Promise<Result>[] = [];
  while (performance.now() < endsAtMs) {
    statuses.push(request());
    await sleep(everyMs);
  }
  return Promise.all(statuses);
}

test.each(["single", "pair"])(
  "A caller of the model %s whose requests make the upstream fail takes nothing from another organization.",
  async (model) => {
    const [noisy, quiet] = await Promise.all([makeOrganization(service, "100"), makeOrganization(service, "100")]);
    const failed = await Promise.all(Array.from({ length: 10 }, () => ask(noisy, model, "fail")));
    const [failedLater, served] = await Promise.all([
      statusesOf(100, () => ask(noisy, model, "fail")),
      statusesOf(200, () => ask(quiet, model, "please")),
    ]);
    expect(new Set([...failed, ...failedLater])).toEqual(new Set([502]));
    expect(served.length).toBeGreaterThan(5);
    expect(new Set(served)).toEqual(new Set([200]));
  },
);

test("A caller whose streams break takes nothing from another organization.", async () => {
  const [noisy, quiet] = await Promise.all([makeOrganization(service, "100"), makeOrganization(service, "100")]);
  await Promise.all(Array.from({ length: 10 }, () => ask(noisy, "single", "break", true)));
  const [broken, served] = await Promise.all([
    statusesOf(100, () => ask(noisy, "single", "break", true)),
    statusesOf(200, () => ask(quiet, "single", "please", true)),
  ]);
  // Between the probes, its requests are refused.
  expect(new Set(broken)).toEqual(new Set(["broken", 502]));
  expect(new Set(served)).toEqual(new Set([200]));
});
