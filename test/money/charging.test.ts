import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { checkpointsIn } from "../support/checkpoints.ts";
import { readDocuments, tableOf } from "../support/documents.ts";
import {
  makeDirectory,
  makeOrganization,
  type Organization,
  type RunningService,
  type ServiceProcess,
  send,
  settledUsage,
  startProcess,
  startService,
} from "../support/service.ts";
import { answering, type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";

/** A credit per output token and a thousandth per input token, so that a charge shows the counted tokens. */
const PRICE = { input: 1_000, output: 1_000_000 };
const MESSAGES = [{ role: "user", content: "go" }];
/** More than any test reads before its stream is ended. */
const WORDS = Array.from({ length: 4_000 }, () => " word");

type Response = Parameters<Behaviour>[0]["response"];

function writeEvent(response: Response, fields: object): void {
  response.write(`data: ${JSON.stringify(fields)}\n\n`);
}

/** Makes a stream of these pieces of text, which ends as `end` does. */
const piecesThen =
  (pieces: readonly string[], end: (response: Response) => void): Behaviour =>
  ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const content of pieces) writeEvent(response, { choices: [{ index: 0, delta: { content } }] });
    end(response);
  };
const breakSoon = (response: Response) => void setTimeout(() => response.destroy(), 50);
/** Reports its usage in the first event, then sends a thousand words. */
const reportsFirst: Behaviour = ({ response }) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  writeEvent(response, { choices: [], usage: { prompt_tokens: 8, completion_tokens: 1, total_tokens: 9 } });
  for (const content of WORDS.slice(0, 1_000)) writeEvent(response, { choices: [{ index: 0, delta: { content } }] });
  writeEvent(response, { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
  response.end("data: [DONE]\n\n");
};
const EXCESSIVE = { prompt_tokens: 8, completion_tokens: 9_999_999, total_tokens: 10_000_007 };
const BEHAVIOURS: Record<string, Behaviour> = {
  slow: answering({ words: WORDS, pauseMs: 20 }),
  mute: () => {},
  breaking: piecesThen(["one", " two"], breakSoon),
  "breaking-early": piecesThen([""], breakSoon),
  stalling: piecesThen(["one", " two"], () => {}),
  stalled: piecesThen(["one", " two"], () => {}),
  excessive: answering({ words: ["a", " b"], usage: EXCESSIVE }),
  "too-low": reportsFirst,
  reasoner: () => {},
  /** Shows a part of its reasoning, then goes on without showing it. */
  "showing-reasoner": ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    writeEvent(response, { choices: [{ index: 0, delta: { reasoning_content: "Let me think." } }] });
  },
  // Not what can be counted, so that it is seen to be believed.
  reporting: answering({ words: ["a", " b"], usage: { prompt_tokens: 90, completion_tokens: 7, total_tokens: 97 } }),
  silent: answering({ words: ["a", " b"] }),
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
    models: Object.keys(BEHAVIOURS).map((id) => ({
      ...{ id, price: PRICE, routes: route(id) },
      ...(id.endsWith("reasoner") && { capabilities: ["reasoning"] }),
    })),
  };
  service = await startService({ config });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

/** Begins a completion whose client can disconnect. */
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

/** Disconnects a second after the upstream was called, and returns how long that call lasted. */
async function secondsUntilLeft(organization: Organization, fields: object): Promise<number> {
  const before = upstream.requests.length;
  const startedMs = Date.now();
  const outgoing = begin(organization, fields);
  await called(before);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  outgoing.destroy();
  const closedMs = (await upstream.requests[before]?.closed) ?? 0;
  return (closedMs - startedMs) / 1_000;
}

/** Estimate for at least a second, at 50 tokens per second until a hundred answers of a route are known. */
function expectEstimate(credits: number, seconds: number): void {
  expect(credits).toBeGreaterThan(49);
  expect(credits).toBeLessThan(seconds * 50 + 50);
}

/** Returns the basis of each charge of an organization. */
async function basesOf(organization: Organization): Promise<string[]> {
  const words = ["credits", "statement", "--org", organization.id];
  const { entries } = await service.tollgate<{ entries: { kind: string; basis?: string }[] }>(...words);
  return entries.flatMap(({ basis }) => basis ?? []);
}

/** Returns the provider's reports in the attempts of an organization's last request, where other tokens were charged. */
async function reportsOf(organization: Organization): Promise<unknown[]> {
  const admin = operator(service);
  const path = `/requests?organization_id=${organization.id}`;
  const { data } = (await admin.call<{ data: { id: string }[] }>("GET", path)).body;
  const detail = await admin.call<{ attempts: { reported?: unknown }[] }>("GET", `/requests/${data[0]?.id}`);
  return detail.body.attempts.map(({ reported }) => reported);
}

/** Returns the charge once nothing is held. */
async function charged(organization: Organization, at = service): Promise<number> {
  return (await settledUsage(at, organization.token)).creditsUsed;
}

async function called(before: number): Promise<void> {
  while (upstream.requests.length === before) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** Expects a charge of so many words, and of the input of a short message. */
function expectWordsAndInput(credits: number, least: number, most = least): void {
  expect(credits).toBeGreaterThan(least);
  expect(credits).toBeLessThan(most + 0.1);
}

/** Defines a test whose name is a row of docs/charging.md; the rows are compared below. */
const tested: string[] = [];
function line(happened: string, isCharged: string, work: () => Promise<void>): void {
  tested.push(`${happened} ${isCharged}`);
  test(`${happened} ${isCharged}`, work);
}

describe("a client that leaves", () => {
  line("You disconnected before a model was called.", "Nothing.", async () => {
    const organization = await makeOrganization(service, "10000");
    const before = upstream.requests.length;
    const outgoing = begin(organization, { model: "mute" }, false);
    await once(outgoing, "socket");
    await new Promise((resolve) => setTimeout(resolve, 100));
    outgoing.destroy();
    expect(await charged(organization)).toBe(0);
    expect(upstream.requests.length).toBe(before);
  });

  line("You disconnected before the first content of a stream.", "The input.", async () => {
    const organization = await makeOrganization(service, "10000");
    const before = upstream.requests.length;
    const outgoing = begin(organization, { model: "mute", stream: true });
    await called(before);
    outgoing.destroy();
    await upstream.requests[before]?.closed;
    expectWordsAndInput(await charged(organization), 0);
  });

  line("You disconnected before an unstreamed answer came.", "The input, and an estimate of the output.", async () => {
    const organization = await makeOrganization(service, "10000");
    const seconds = await secondsUntilLeft(organization, { model: "mute" });
    expectEstimate(await charged(organization), seconds);
    expect(await basesOf(organization)).toEqual(["estimated"]);
  });

  line(
    "You disconnected from a model that reasons, before it reported its usage.",
    "The input, and the larger of an estimate of the output and what was sent to you.",
    async () => {
      for (const model of ["reasoner", "showing-reasoner"]) {
        const organization = await makeOrganization(service, "10000");
        const seconds = await secondsUntilLeft(organization, { model, stream: true });
        expectEstimate(await charged(organization), seconds);
        expect(await basesOf(organization)).toEqual(["estimated"]);
      }
    },
  );

  line(
    "You disconnected in the middle of an answer.",
    "The input, and what was produced for you until then.",
    async () => {
      const organization = await makeOrganization(service, "10000");
      const before = upstream.requests.length;
      const outgoing = begin(organization, { model: "slow", stream: true });
      const [answer] = await once(outgoing, "response");
      let words = 0;
      for await (const data of answer) {
        words += String(data).split(" word").length - 1;
        if (words >= 10) break;
      }
      outgoing.destroy();
      const request = upstream.requests[before];
      await request?.closed;
      // The output that was under way when the client disconnected was produced for it, too.
      expectWordsAndInput(await charged(organization), words, request?.words);
    },
  );
});

describe("an upstream that fails, and one that says nothing more", () => {
  line("The provider failed before the first content of a stream.", "Nothing.", async () => {
    const organization = await makeOrganization(service, "10000");
    const answer = await complete(organization, { model: "breaking-early", stream: true });
    expect(await answer.text()).toContain('"code":"upstream_error"');
    expect(await charged(organization)).toBe(0);
  });

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

describe("a service that stops", () => {
  line(
    "Our service ended your stream in its middle, because it stopped.",
    "The input, and what was sent to you.",
    async () => {
      const dataDir = await makeDirectory();
      const stopping = { ...config, server: { drainSeconds: 0.2 } };
      const stopped = await startService({ config: stopping, dataDir });
      const organization = await makeOrganization(stopped, "10000");
      const answer = await complete(organization, { model: "stalled", stream: true }, stopped);
      const ended = stopped.end();
      expect(await answer.text()).toContain('"code":"overloaded"');
      await ended;
      const again = await startService({ config, dataDir });
      try {
        expectWordsAndInput(await charged(organization, again), 2);
      } finally {
        await again.end();
      }
    },
  );
});

describe("a service that is killed", () => {
  let killed: ServiceProcess;
  let again: RunningService;
  let [words, streamed, unstreamed] = [0, {} as Organization, {} as Organization];
  beforeAll(async () => {
    const dataDir = await makeDirectory();
    killed = await startProcess({ config, dataDir });
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

describe("a report that cannot be true", () => {
  line("The provider reported more than your request allows.", "The maximum that your request allows.", async () => {
    for (const stream of [false, true]) {
      const organization = await makeOrganization(service, "10000");
      const answer = await (await complete(organization, { model: "excessive", stream, max_tokens: 10 })).text();
      expect(answer).toContain('"completion_tokens":10,');
      expect(await charged(organization)).toBe(10.008);
      expect(await basesOf(organization)).toEqual(["bounded"]);
      expect(await reportsOf(organization)).toMatchObject([{ input: 8, output: 9_999_999 }]);
    }
  });

  test("A token with a cap is never charged more than its hold.", async () => {
    const organization = await makeOrganization(service, "10000");
    const { token } = await service.tollgate<{ token: string }>(
      ...["token", "create", "--org", organization.id, "--name", "capped", "--cap", "2.5"],
    );
    const fields = { model: "excessive", messages: MESSAGES, max_tokens: 2 };
    expect((await send(service, "/v1/chat/completions", token, fields)).status).toBe(200);
    expect(await charged(organization)).toBe(2.008);
  });

  line(
    "The provider reported less than half of your answer's tokens, and at least 65 too few.",
    "What it reported of the input, and the output that we counted.",
    async () => {
      const organization = await makeOrganization(service, "10000");
      const answer = await complete(organization, { model: "too-low", stream: true, max_tokens: 2_000 });
      expect(await answer.text()).toContain('"completion_tokens":1000,');
      expect(await charged(organization)).toBe(1_000.008);
      expect(await basesOf(organization)).toEqual(["counted"]);
    },
  );

  test("A dense prompt without a report is charged its tokens, not a quarter of its bytes.", async () => {
    const organization = await makeOrganization(service, "10000");
    const content = Array.from({ length: 4_000 }, (_, index) => String.fromCharCode(33 + ((index * 7) % 90))).join("");
    const messages = [{ role: "user", content }];
    await (await complete(organization, { model: "silent", messages })).text();
    expectWordsAndInput(await charged(organization), 2 + 2, 2 + 4);
  });
});

test("The rows of docs/charging.md are exactly the tested ones.", () => {
  const page = readDocuments().find(({ path }) => path === "docs/charging.md");
  if (page === undefined) throw new Error("There is no docs/charging.md");
  expect(tableOf(page, "what happened").map((cells) => cells.join(" "))).toEqual(tested);
});
