import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { checkpointsIn } from "../support/checkpoints.ts";
import { readDocuments, tableOf } from "../support/documents.ts";
import {
  makeDirectory,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { answering, type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";

/** A credit for a token of output, a thousandth for one of input: what is charged tells what was counted. */
const PRICE = { input: 1_000, output: 1_000_000 };
const MESSAGES = [{ role: "user", content: "go" }];
/** More than any test hears before its stream is cut off. */
const WORDS = Array.from({ length: 4_000 }, () => "word ");

/** Two words of an answer, then what is told. */
const twoWordsThen =
  (end: (response: Parameters<Behaviour>[0]["response"]) => void): Behaviour =>
  ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const content of ["one ", "two "]) {
      response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`);
    }
    end(response);
  };
const BEHAVIOURS: Record<string, Behaviour> = {
  slow: answering({ words: WORDS, pauseMs: 20 }),
  mute: () => {},
  breaking: twoWordsThen((response) => setTimeout(() => response.destroy(), 50)),
  stalling: twoWordsThen(() => {}),
  // Not what can be counted, so that it is seen to be believed.
  reporting: answering({ words: ["a ", "b "], usage: { prompt_tokens: 90, completion_tokens: 7, total_tokens: 97 } }),
  silent: answering({ words: ["a ", "b "] }),
};

let upstream: Upstream;
let service: RunningService;
let config: object;

beforeAll(async () => {
  upstream = await startUpstream();
  for (const [model, behaviour] of Object.entries(BEHAVIOURS)) upstream.behave(model, behaviour);
  // One alone is not waited for: a busy machine may take its time for the others.
  const route = (id: string) => [{ provider: id === "stalling" ? "hasty" : "up", model: id }];
  const compatible = { kind: "openai-compatible", baseUrl: upstream.baseUrl, apiKey: "k" };
  config = {
    ledger: { holdSeconds: 3, renewSeconds: 0.5, sweepSeconds: 0.5 },
    providers: [
      { id: "up", ...compatible },
      { id: "hasty", ...compatible, timeouts: { idleMs: 1_000 } },
    ],
    models: Object.keys(BEHAVIOURS).map((id) => ({ id, price: PRICE, routes: route(id) })),
  };
  service = await startService({ config });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

/** Begins a completion that its client can leave. */
function begin(organization: Organization, fields: object, isWhole = true) {
  const outgoing = httpRequest(`${service.baseUrl}/chat/completions`, {
    method: "POST",
    agent: false,
    headers: { authorization: `Bearer ${organization.token}`, "content-type": "application/json" },
  });
  outgoing.on("error", () => {});
  const body = JSON.stringify({ messages: MESSAGES, max_tokens: 500, ...fields });
  if (isWhole) outgoing.end(body);
  else outgoing.write(body.slice(0, 20));
  return outgoing;
}

const complete = (organization: Organization, fields: object, at = service) =>
  send(at, "/v1/chat/completions", organization.token, { messages: MESSAGES, max_tokens: 500, ...fields });

/** What was charged, once nothing is held any more. */
async function charged(organization: Organization, at = service): Promise<number> {
  for (;;) {
    const usage = (await (await send(at, "/v1/usage", organization.token)).json()) as Record<string, number>;
    if (usage.creditsHeld === 0) return usage.creditsUsed ?? Number.NaN;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function called(before: number): Promise<void> {
  while (upstream.requests.length === before) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** A charge is so many words, and the input of a short message beside. */
function expectWordsAndInput(credits: number, least: number, most = least): void {
  expect(credits).toBeGreaterThan(least);
  expect(credits).toBeLessThan(most + 0.1);
}

/** The names of these tests are the lines of docs/charging.md, which are compared with them below. */
const tested: string[] = [];
function line(happened: string, isCharged: string, work: () => Promise<void>): void {
  tested.push(`${happened} ${isCharged}`);
  test(`${happened} ${isCharged}`, work);
}

describe("a client that leaves", () => {
  line("You left before a model was called.", "Nothing.", async () => {
    const organization = await makeOrganization(service, "10000");
    const before = upstream.requests.length;
    const outgoing = begin(organization, { model: "mute" }, false);
    await once(outgoing, "socket");
    await new Promise((resolve) => setTimeout(resolve, 100));
    outgoing.destroy();
    expect(await charged(organization)).toBe(0);
    expect(upstream.requests.length).toBe(before);
  });

  line("You left before the first word.", "The input.", async () => {
    const organization = await makeOrganization(service, "10000");
    const before = upstream.requests.length;
    const outgoing = begin(organization, { model: "mute", stream: true });
    await called(before);
    outgoing.destroy();
    await upstream.requests[before]?.closed;
    expectWordsAndInput(await charged(organization), 0);
  });

  line("You left in the middle of an answer.", "The input, and what was produced for you until then.", async () => {
    const organization = await makeOrganization(service, "10000");
    const before = upstream.requests.length;
    const outgoing = begin(organization, { model: "slow", stream: true });
    const [answer] = await once(outgoing, "response");
    let words = 0;
    for await (const data of answer) {
      words += String(data).split("word ").length - 1;
      if (words >= 10) break;
    }
    outgoing.destroy();
    const request = upstream.requests[before];
    await request?.closed;
    // What was under way when it left was produced for it, too.
    expectWordsAndInput(await charged(organization), words, request?.words);
  });
});

describe("an upstream that fails, and one that says nothing more", () => {
  line("The provider failed in the middle of a stream.", "The input, and what was sent to you.", async () => {
    const organization = await makeOrganization(service, "10000");
    const answer = await complete(organization, { model: "breaking", stream: true });
    expect(await answer.text()).toContain('"code":"upstream_error"');
    expectWordsAndInput(await charged(organization), 2);
  });

  line("The provider fell silent in the middle of a stream.", "The input, and what was sent to you.", async () => {
    const organization = await makeOrganization(service, "10000");
    const answer = await complete(organization, { model: "stalling", stream: true });
    expect(await answer.text()).toContain('"code":"upstream_timeout"');
    expectWordsAndInput(await charged(organization), 2);
  });

  line("The answer is an error, with any status from 400.", "Nothing.", async () => {
    const organization = await makeOrganization(service, "10000");
    const statuses = [];
    for (const fields of [{ model: "breaking" }, { model: "stalling" }, { model: "absent" }, { model: 7 }]) {
      statuses.push((await complete(organization, fields)).status);
    }
    expect(statuses).toEqual([502, 504, 404, 400]);
    expect(await charged(organization)).toBe(0);
  });
});

describe("a service that is killed", () => {
  let killed: RunningService;
  let again: RunningService;
  let [words, streamed, unstreamed] = [0, {} as Organization, {} as Organization];
  beforeAll(async () => {
    const dataDir = await makeDirectory();
    killed = await startService({ config, dataDir });
    streamed = await makeOrganization(killed, "10000");
    unstreamed = await makeOrganization(killed, "10000");
    const before = upstream.requests.length;
    complete(unstreamed, { model: "mute" }, killed).catch(() => {});
    await called(before);
    const answer = await complete(streamed, { model: "slow", stream: true }, killed);
    const reader = answer.body?.getReader();
    // Until it has noted what was sent.
    while (!(checkpointsIn(dataDir, streamed.id)[0] ?? 0)) await reader?.read();
    await killed.end("SIGKILL");
    words = upstream.requests.at(-1)?.words ?? 0;
    again = await startService({ config, dataDir });
  });
  afterAll(() => again?.end());

  line(
    "Our service was killed in the middle of your stream.",
    "The input, and what it had noted last of what was sent to you.",
    async () => expectWordsAndInput(await charged(streamed, again), 1, words),
  );
  line("Our service was killed before your answer, without streaming.", "Nothing.", async () =>
    expect(await charged(unstreamed, again)).toBe(0),
  );
});

describe("a complete answer", () => {
  line("You got a complete answer, and the provider reported its usage.", "What it reported.", async () => {
    for (const stream of [false, true]) {
      const organization = await makeOrganization(service, "10000");
      await (await complete(organization, { model: "reporting", stream })).text();
      expect(await charged(organization)).toBe(7.09);
    }
  });

  line("You got a complete answer, and the provider reported no usage.", "What we counted.", async () => {
    for (const stream of [false, true]) {
      const organization = await makeOrganization(service, "10000");
      await (await complete(organization, { model: "silent", stream })).text();
      expectWordsAndInput(await charged(organization), 1, 4);
    }
  });
});

test("docs/charging.md has these lines and no other", () => {
  const page = readDocuments().find(({ path }) => path === "docs/charging.md");
  if (page === undefined) throw new Error("There is no docs/charging.md");
  expect(tableOf(page, "what happened").map((cells) => cells.join(" "))).toEqual(tested);
});
