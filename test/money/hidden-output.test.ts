import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { countOf, timeoutOf } from "../support/counts.ts";
import {
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startService,
} from "../support/service.ts";
import { type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";

/** A credit per output token and nothing for input, so that a charge shows the counted tokens. */
const PRICE = { input: 0, output: 1_000_000 };
/** Twice the rate that is assumed before the answers of a route are known. */
const TOKEN_EVERY_MS = 10;
/** Answers after which the rate of a route is known. */
const ANSWERS = 100;
const AT_ONCE = 20;
const MODEL = "hidden";
/** Streams its whole answer, and then neither its usage nor an end. */
const LINGERING = "lingering";
/** Half of the clients disconnect before an answer without streaming, the others with all words of a stream. */
const DEPARTURES = countOf("departures") / 2;
/** The share of hidden output that is charged is exact enough over this many requests. */
const GROUP = 100;
/** Prompts of few and of many tokens for their length. */
const PROMPTS = ["Hello there, how are you?", "0x9f3c7e1b5a", "🜁🜂🜃🜄", "\\u0000}{][)(*&^%$#@!", "漢字かな交じり文"];

let upstream: Upstream;
let service: RunningService;
/** Tokens that the upstream produced until each of its answers ended or was aborted. */
const produced: number[] = [];

/**
 * Produces as many tokens as the prompt names, then answers with all of them. They are counted by the clock, because a busy
 * machine delays timers.
 */
const produce: Behaviour = ({ response, body }) => {
  const [{ content }] = body.messages as [{ content: string }];
  const place = produced.push(0) - 1;
  const startedMs = performance.now();
  const count = () => {
    const tokens = Math.min(Number(content), Math.floor((performance.now() - startedMs) / TOKEN_EVERY_MS));
    produced[place] = tokens;
    return tokens;
  };
  const timer = setInterval(() => {
    const tokens = count();
    if (tokens < Number(content)) return;
    clearInterval(timer);
    const usage = { prompt_tokens: 5, completion_tokens: tokens, total_tokens: tokens + 5 };
    const message = { role: "assistant", content: " word".repeat(tokens) };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ choices: [{ index: 0, message, finish_reason: "stop" }], usage }));
  }, TOKEN_EVERY_MS);
  response.once("close", () => {
    clearInterval(timer);
    count();
  });
};

/** Answers with as many words as the last message names. */
const linger: Behaviour = ({ response, body }) => {
  const words = Number((body.messages as { content: string }[]).at(-1)?.content);
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (let sent = 0; sent < words; sent += 1) {
    response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: " word" } }] })}\n\n`);
  }
};

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave(MODEL, produce);
  upstream.behave(LINGERING, linger);
  const models = [MODEL, LINGERING].map((id) => ({ id, price: PRICE, routes: [{ provider: "up", model: id }] }));
  const limits = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 1_000 };
  service = await startService({ config: { providers: [upstream.provider], models, limits } });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const bodyOf = (tokens: number) => ({
  model: MODEL,
  messages: [{ role: "user", content: `${tokens}` }],
  max_tokens: 500,
});

async function inGroups(count: number, work: (index: number) => Promise<void>): Promise<void> {
  for (let from = 0; from < count; from += AT_ONCE) {
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, index) => work(from + index)));
  }
}

/** Begins a completion, and disconnects a while after its upstream was called. */
async function leave(organization: Organization, afterMs: number): Promise<void> {
  const outgoing = httpRequest(`${service.baseUrl}/chat/completions`, {
    method: "POST",
    agent: false,
    headers: { authorization: `Bearer ${organization.token}`, "content-type": "application/json" },
  });
  outgoing.on("error", () => {});
  outgoing.end(JSON.stringify(bodyOf(120)));
  await once(outgoing, "finish");
  await sleep(afterMs);
  outgoing.destroy();
}

async function charged(organization: Organization): Promise<number> {
  return (await settledUsage(service, organization.token)).creditsUsed;
}

test(
  `Invisible output of ${DEPARTURES} clients that disconnect is charged within 50 % of the produced output.`,
  async () => {
    const organization = await makeOrganization(service, "1000000");
    await inGroups(ANSWERS, async (index) => {
      const answer = await send(service, "/v1/chat/completions", organization.token, bodyOf(40 + ((index * 37) % 80)));
      expect(answer.status).toBe(200);
      await answer.arrayBuffer();
    });
    let chargedBefore = await charged(organization);
    expect(chargedBefore).toBe(produced.reduce((sum, tokens) => sum + tokens, 0));
    for (let left = 0; left < DEPARTURES; left += GROUP) {
      produced.length = 0;
      await inGroups(GROUP, (index) => leave(organization, 100 + ((index * 107) % 900)));
      const chargedNow = await charged(organization);
      const estimated = chargedNow - chargedBefore;
      const total = produced.reduce((sum, tokens) => sum + tokens, 0);
      expect(produced.length).toBeGreaterThan(GROUP / 2);
      expect(estimated).toBeGreaterThan(total / 2);
      expect(estimated).toBeLessThan(total * 1.5);
      chargedBefore = chargedNow;
    }
  },
  timeoutOf("departures"),
);

test(
  `${DEPARTURES} clients that disconnect with all words of a stream are charged them exactly.`,
  async () => {
    const organization = await makeOrganization(service, "1000000");
    let words = 0;
    await inGroups(DEPARTURES, async (index) => {
      const count = 1 + ((index * 37) % 60);
      words += count;
      const content = PROMPTS[index % PROMPTS.length]?.repeat(1 + (index % 20));
      const messages = [
        { role: "user", content },
        { role: "user", content: `${count}` },
      ];
      const body = { model: LINGERING, messages, max_tokens: 100, stream: true };
      const leaving = new AbortController();
      const answer = await send(service, "/v1/chat/completions", organization.token, body, { signal: leaving.signal });
      expect(answer.status).toBe(200);
      let received = "";
      const decoder = new TextDecoder();
      for await (const bytes of answer.body ?? []) {
        received += decoder.decode(bytes, { stream: true });
        if (received.split(" word").length > count) break;
      }
      leaving.abort();
    });
    expect(await charged(organization)).toBe(words);
  },
  timeoutOf("departures"),
);
