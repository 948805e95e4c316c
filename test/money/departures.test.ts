import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { checkpointsIn } from "../support/checkpoints.ts";
import { cutOffMs } from "../support/patience.ts";
import {
  makeDirectory,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startProcess,
  startService,
  usageOf,
} from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

const PRICE = { input: 1_000, output: 1_000_000 };
/** More than any test reads before its stream is ended. */
const WORDS = Array<string>(4_000).fill(" word");

const STOPPING = "The service is stopping. Send the request again.";

let upstream: Upstream;
let service: RunningService;

const configOf = (baseUrl: string) => ({
  ledger: { holdSeconds: 3, renewSeconds: 0.5, sweepSeconds: 0.5 },
  providers: [{ id: "up", kind: "openai-compatible", baseUrl, apiKey: "k" }],
  models: ["slow", "mute"].map((id) => ({ id, price: PRICE, routes: [{ provider: "up", model: id }] })),
});

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("slow", answering({ words: WORDS, pauseMs: 20 }));
  upstream.behave("mute", () => {});
  service = await startService({ config: configOf(upstream.baseUrl) });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 20));
}

/** Reads a stream until it ends. */
async function countWords(answer: Response, count: () => void): Promise<void> {
  const decoder = new TextDecoder();
  try {
    for await (const bytes of answer.body ?? []) {
      for (const _ of decoder.decode(bytes, { stream: true }).matchAll(/ word/g)) count();
    }
  } catch {
    // The service was killed.
  }
}

/** Sends a completion on a connection of its own, and disconnects on request. */
function start(organization: Organization, fields: object) {
  const messages = [{ role: "user", content: "go" }];
  const outgoing = httpRequest(`${service.baseUrl}/chat/completions`, {
    method: "POST",
    agent: false,
    headers: { authorization: `Bearer ${organization.token}`, "content-type": "application/json" },
  });
  outgoing.on("error", () => {});
  outgoing.end(JSON.stringify({ messages, max_tokens: 500, ...fields }));
  return outgoing;
}

describe("a client that disconnects", () => {
  test("A client that disconnects from a stream pays the input and the produced output, and the upstream is disconnected within 500 ms.", async () => {
    const organization = await makeOrganization(service, "10000");
    const before = upstream.requests.length;
    const outgoing = start(organization, { model: "slow", stream: true });
    const [answer] = await once(outgoing, "response");
    let received = "";
    for await (const data of answer) {
      received += data;
      if (received.split(" word").length > 10) break;
    }
    const request = upstream.requests[before];
    expect(await cutOffMs(service, request, () => outgoing.destroy())).toBeLessThan(500);
    const { creditsUsed } = await settledUsage(service, organization.token);
    expect(creditsUsed).toBeGreaterThanOrEqual(received.split(" word").length - 1);
    expect(creditsUsed).toBeLessThan((request?.words ?? 0) + 1);
  });
});

describe("kill -9 during 100 running completions", () => {
  test("The next start charges streamed output, charges unstreamed answers nothing, and leaves no credits locked.", async () => {
    const dataDir = await makeDirectory();
    const config = configOf(upstream.baseUrl);
    const first = await startProcess({ config, dataDir });
    const organization = await makeOrganization(first, "100000");
    const unstreamed = await makeOrganization(first, "100000");
    const body = { messages: [{ role: "user", content: "go" }], max_tokens: 500 };
    const ask = ({ token }: Organization, fields: object) =>
      send(first, "/v1/chat/completions", token, { ...body, ...fields });
    for (let i = 0; i < 3; i += 1) ask(unstreamed, { model: "mute" }).catch(() => {});
    const running = Array.from({ length: 100 }, () => ask(organization, { model: "slow", stream: true }));
    let words = 0;
    const read = (await Promise.all(running)).map((answer) => countWords(answer, () => (words += 1)));
    expect((await usageOf(first, organization.token)).creditsHeld).toBeGreaterThan(100 * 500);
    // Until it has noted a word of each.
    await until(() => {
      const noted = checkpointsIn(dataDir, organization.id);
      return noted.length === 100 && noted.every((output) => output > 0);
    });
    await first.end("SIGKILL");
    await Promise.all(read);
    const second = await startService({ config, dataDir });
    try {
      expect(await second.tollgate("ledger", "verify")).toMatchObject({ ok: true });
      const { creditsUsed } = await settledUsage(second, organization.token);
      // Each pays at least one word, at a credit each, and the input; never more than was received.
      expect(creditsUsed).toBeGreaterThan(100);
      expect(creditsUsed).toBeLessThan(words + 100);
      expect(await settledUsage(second, unstreamed.token)).toMatchObject({ creditsUsed: 0 });
      expect(await second.tollgate("ledger", "verify")).toMatchObject({ ok: true });
      const again = await send(second, "/v1/models", organization.token);
      expect(again.status).toBe(200);
    } finally {
      await second.end();
    }
  });
});

describe("a stop after its grace period", () => {
  test("A stopped stream is charged the input and the sent output; a stopped unstreamed answer is 503 and charged nothing.", async () => {
    const dataDir = await makeDirectory();
    const config = { ...configOf(upstream.baseUrl), server: { drainSeconds: 0.5 } };
    const first = await startProcess({ config, dataDir });
    const [streamed, unstreamed] = [await makeOrganization(first, "10000"), await makeOrganization(first, "10000")];
    const body = { messages: [{ role: "user", content: "go" }], max_tokens: 500 };
    const before = upstream.requests.length;
    const cut = send(first, "/v1/chat/completions", unstreamed.token, { ...body, model: "mute" });
    cut.catch(() => undefined);
    await until(() => upstream.requests.length > before);
    const answer = await send(first, "/v1/chat/completions", streamed.token, { ...body, model: "slow", stream: true });
    let words = 0;
    const read = countWords(answer, () => (words += 1));
    await until(() => words > 0);
    expect(await first.end("SIGTERM")).toBe(0);
    const refused = await cut;
    expect(refused.status).toBe(503);
    expect(refused.headers.get("retry-after")).toBe("1");
    expect(await refused.json()).toMatchObject({ error: { code: "overloaded", message: STOPPING } });
    await read;
    const second = await startService({ config, dataDir });
    try {
      const { creditsUsed } = await usageOf(second, streamed.token);
      expect(creditsUsed).toBeGreaterThan(1);
      expect(creditsUsed).toBeLessThan((upstream.requests.at(-1)?.words ?? 0) + 1);
      expect(await usageOf(second, unstreamed.token)).toMatchObject({ creditsUsed: 0, creditsHeld: 0 });
    } finally {
      await second.end();
    }
  });
});
