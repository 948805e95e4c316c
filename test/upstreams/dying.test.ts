import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  freePort,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { answering, type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";
import { CASES, type Outcome } from "./cases.ts";
import { modelOf, providerAt, startServers } from "./servers.ts";
import { OWN_KIND } from "./wire-cases.ts";

const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
/** A credit a token. */
const PRICE = { input: 1_000_000, output: 1_000_000 };
const ASKED = 100;
const WORDS = Array.from({ length: 20 }, (_, index) => `w${index} `);
/** More than are said in the time of any test. */
const LONG = Array.from({ length: 10_000 }, (_, index) => `w${index} `);

let healthy: Upstream;
let servers: Awaited<ReturnType<typeof startServers>>;
let service: RunningService;
let organization: Organization;
let mortal: Mortal;
let called = 0;

/** An upstream that can be killed, with every connection that it has, and brought back at the same address. */
interface Mortal {
  baseUrl: string;
  live(): Promise<void>;
  die(): Promise<void>;
}

async function startMortal(behaviour: Behaviour): Promise<Mortal> {
  const port = await freePort();
  let server: ReturnType<typeof createServer> | undefined;
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    live: async () => {
      server = createServer(async (request, response) => {
        let text = "";
        for await (const chunk of request.on("error", () => {})) text += chunk;
        const body = JSON.parse(text);
        void behaviour({ body, headers: request.headers, response, words: 0, closed: Promise.resolve(0) });
      });
      await new Promise<void>((resolve) => server?.listen(port, "127.0.0.1", resolve));
    },
    die: async () => {
      const ended = new Promise((resolve) => server?.close(resolve));
      server?.closeAllConnections();
      await ended;
    },
  };
}

beforeAll(async () => {
  servers = await startServers();
  healthy = await startUpstream();
  healthy.behave("spare", answering({ words: ["the ", "spare"], usage: USAGE }));
  const speak = answering({ words: WORDS, usage: USAGE });
  const begin = answering({ words: LONG, pauseMs: 50 });
  // While it is being asked half of its answers begin, none of which ends, and half do not; afterwards all end.
  mortal = await startMortal(async (request) => {
    called += 1;
    if (called > ASKED) await speak(request);
    else if (called % 4 < 2) await begin(request);
  });
  await mortal.live();
  const well = (id: string, baseUrl: string) => ({ id, kind: "openai-compatible", baseUrl, apiKey: "k" });
  const spare = { provider: "healthy", model: "spare" };
  service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 1000 },
      providers: [...servers.providers, well("healthy", healthy.baseUrl), well("mortal", mortal.baseUrl)],
      models: [
        ...CASES.map(({ at }, index) => ({
          id: modelOf(OWN_KIND, index),
          price: PRICE,
          routes: [{ provider: providerAt(OWN_KIND, at), model: modelOf(OWN_KIND, index) }, spare],
        })),
        { id: "two", price: PRICE, routes: [{ provider: "mortal", model: "m" }, spare] },
      ],
    },
  });
  organization = await makeOrganization(service, "1000000000");
});

afterAll(async () => {
  await service?.end();
  await mortal?.die();
  await healthy?.close();
  await servers?.end();
});

async function ask(model: string, stream: boolean) {
  const body = { model, messages: [{ role: "user", content: "go" }], max_tokens: 100, stream };
  const answer = await send(service, "/v1/chat/completions", organization.token, body);
  return { status: answer.status, route: answer.headers.get("x-tollgate-route"), text: await answer.text() };
}

/** Reports whether the upstream failed, and not the request, before the first word of an answer. */
function diesEarly(outcome: Outcome): boolean {
  return outcome.startsWith("nothing") || /^5\d\d/.test(outcome);
}

describe.each(["streamed", "unstreamed"] as const)("one of two upstreams dies before its first word, %s", (mode) => {
  const dying = [...CASES.entries()].filter(([, one]) => diesEarly(one[mode]));
  test.each(dying.map(([index, { name }]) => [name, index] as const))("%s: the other serves", async (_name, index) => {
    const answer = await ask(modelOf(OWN_KIND, index), mode === "streamed");
    expect(answer).toMatchObject({ status: 200, route: "healthy/spare", text: expect.stringContaining("spare") });
    expect(answer.text).not.toContain('"error"');
  });
});

test("killed under a hundred requests: none fails that had not begun; while it is dead none waits; alive, it is taken back", async () => {
  const running = Array.from({ length: ASKED }, (_, index) => ask("two", index % 2 === 0));
  while (called < ASKED) await sleep(10);
  await mortal.die();
  const first = await Promise.all(running);
  const failed = first.filter(({ text }) => text.includes('"error"'));
  expect(failed.filter(({ status, text }) => status !== 200 || !text.includes("w0 "))).toEqual([]);
  expect(failed.length).toBeGreaterThan(0);
  expect(first.filter(({ route }) => route === "healthy/spare").length).toBeGreaterThan(10);
  for (let count = 0; count < 60; count += 1) {
    expect(await ask("two", count % 2 === 0)).toMatchObject({ status: 200, route: "healthy/spare" });
  }
  await expect.poll(() => service.output()).toContain('"route":"mortal/m","msg":"an upstream fails repeatedly');
  await mortal.live();
  let route: string | null = null;
  while (route !== "mortal/m") {
    const answer = await ask("two", false);
    expect(answer).toMatchObject({ status: 200, text: expect.not.stringContaining('"error"') });
    route = answer.route;
    await sleep(50);
  }
  await expect
    .poll(() => service.output())
    .toContain('"route":"mortal/m","msg":"an upstream answers an organization again"');
});

test("nothing was charged twice, and each charge is of the route that served", async () => {
  const { entries } = await service.tollgate<{ entries: Charge[] }>("credits", "statement", "--org", organization.id);
  const charges = entries.filter(({ kind }) => kind === "charge");
  expect(charges.length).toBeGreaterThan(200);
  expect(new Set(charges.map(({ requestId }) => requestId)).size).toBe(charges.length);
  const spare = charges.filter(({ route }) => route === "healthy/spare");
  expect(spare.length).toBeGreaterThan(200);
  expect(spare.filter(({ amount }) => amount !== -USAGE.total_tokens)).toEqual([]);
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});

interface Charge {
  kind: string;
  requestId: string;
  route: string;
  amount: number;
}
