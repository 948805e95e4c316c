import { setTimeout as sleep } from "node:timers/promises";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { streamText } from "ai";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { checkpointsIn } from "../support/checkpoints.ts";
import { createTestDatabase, hasPostgres } from "../support/postgres.ts";
import {
  makeDirectory,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  startProcess,
  startService,
} from "../support/service.ts";
import { answering, type Behaviour, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

/* Retries of real SDKs after answers that broke, and what each intent is charged in the end. */

const PRICE = { input: 1_000_000, output: 1_000_000 };
const WORDS = Array<string>(20).fill(" word");
/** Words that are sent before a stream breaks. */
const SENT = 7;
const INTENTS = 40;
const AT_ONCE = 8;
const ATTEMPTS_MAX = 30;
const PROMPT = "Say the word.";

const whole = answering({ words: WORDS });

const breaksInTheMiddle: Behaviour = async ({ body, response }) => {
  response.writeHead(200, { "content-type": body.stream === true ? "text/event-stream" : "application/json" });
  for (const content of WORDS.slice(0, SENT)) {
    const choices = [{ index: 0, delta: { content }, finish_reason: null }];
    response.write(body.stream === true ? `data: ${JSON.stringify({ choices })}\n\n` : '{"choices": [');
    await sleep(2);
  }
  await sleep(20);
  response.destroy();
};

const FAULTS: readonly Behaviour[] = [
  ({ response }) => void response.destroy(),
  ({ response }) => sendJson(response, 503, { error: { message: "overloaded" } }),
  // The service waits for the first byte in vain.
  () => {},
  breaksInTheMiddle,
];

/** Returns an upstream that fails three of ten requests, in each way in turn. */
function failing(): Behaviour {
  let requests = 0;
  return (request) => {
    requests += 1;
    const fault = [3, 6, 9].indexOf(requests % 10);
    if (fault < 0) return whole(request);
    return FAULTS[(Math.floor(requests / 10) * 3 + fault) % FAULTS.length]?.(request);
  };
}

interface Charge {
  kind: string;
  id: string;
  amount: number;
  ending: string;
  retry: { of: string; credited: number } | null;
  metadata: Record<string, string> | null;
}

async function chargesOf(service: RunningService, { id }: Organization): Promise<Charge[]> {
  const { entries } = await service.tollgate<{ entries: Charge[] }>("credits", "statement", "--org", id);
  return entries.filter(({ kind }) => kind === "charge");
}

/** Sums charges by the user that a request names. */
function byUser(charges: readonly Charge[]): Map<string, number> {
  const sums = new Map<string, number>();
  for (const { metadata, amount } of charges) {
    const user = metadata?.user ?? "";
    sums.set(user, (sums.get(user) ?? 0) - amount);
  }
  return sums;
}

/** Reads an answer, and repeats it as an application does: `retries` is undefined for the first attempt. */
type Ask = (token: string, user: string, retries: string | undefined) => Promise<string>;

const headersOf = (retries: string | undefined) => ({
  headers: retries === undefined ? {} : { "X-Stainless-Retry-Count": retries },
});

async function untilAnswered(ask: Ask, token: string, user: string): Promise<number> {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
    const text = await ask(token, user, attempt === 0 ? undefined : String(attempt)).catch(() => "");
    if (text === WORDS.join("")) return attempt;
    await sleep(50);
  }
  throw new Error(`${user} was not answered`);
}

let upstream: Upstream;
let service: RunningService;

const configOf = (more: object = {}) => ({
  ledger: { renewSeconds: 0.3, sweepSeconds: 0.3 },
  providers: [{ ...upstream.provider, timeouts: { firstByteMs: 700, idleMs: 700 } }],
  models: ["whole", "failing", "cut"].map((id) => ({ id, price: PRICE, routes: [{ provider: "up", model: id }] })),
  ...more,
});

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("whole", whole);
  upstream.behave("failing", failing());
  service = await startService({ config: configOf() });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const messages = [{ role: "user" as const, content: PROMPT }];

const openai = (token: string, baseURL = service.baseUrl) => new OpenAI({ apiKey: token, baseURL, maxRetries: 4 });
const anthropic = (token: string) => new Anthropic({ apiKey: token, baseURL: service.url, maxRetries: 4 });

const CLIENTS: Record<string, (model: string) => Ask> = {
  "openai-node": (model) => async (token, user, retries) => {
    const body = { model, messages, user, max_tokens: 50 };
    const answer = await openai(token).chat.completions.create(body, headersOf(retries));
    return answer.choices[0]?.message.content ?? "";
  },
  "openai-node, streamed": (model) => async (token, user, retries) => {
    const body = { model, messages, user, max_tokens: 50, stream: true } as const;
    let text = "";
    for await (const { choices } of await openai(token).chat.completions.create(body, headersOf(retries))) {
      text += choices[0]?.delta.content ?? "";
    }
    return text;
  },
  "Anthropic's SDK, streamed": (model) => async (token, user, retries) => {
    const body = { model, messages, metadata: { user_id: user }, max_tokens: 50, stream: true } as const;
    let text = "";
    for await (const event of await anthropic(token).messages.create(body, headersOf(retries))) {
      if (event.type === "content_block_delta" && event.delta.type === "text_delta") text += event.delta.text;
    }
    return text;
  },
};

describe("retries against an upstream that fails three of ten requests", () => {
  test.each(Object.keys(CLIENTS))(
    "%s gets every answer, and each intent is charged one complete answer.",
    async (name) => {
      const client = CLIENTS[name];
      if (client === undefined) throw new Error(`no client ${name}`);
      const organization = await makeOrganization(service, "100000");
      await untilAnswered(client("whole"), organization.token, "complete");
      const users = Array.from({ length: INTENTS }, (_, index) => `user ${index}`);
      const left = [...users];
      const work = async () => {
        for (let user = left.pop(); user !== undefined; user = left.pop()) {
          await untilAnswered(client("failing"), organization.token, user);
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, work));
      const charges = await chargesOf(service, organization);
      const paid = byUser(charges);
      const complete = paid.get("complete");
      expect(complete).toBeGreaterThan(WORDS.length);
      expect(paid).toEqual(new Map(["complete", ...users].map((user) => [user, complete])));
      if (name.includes("streamed")) expect(charges.some(({ retry }) => retry !== null)).toBe(true);
      expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
    },
  );

  test("The AI SDK sends no count, so that each of its attempts is a new intent.", async () => {
    const organization = await makeOrganization(service, "100000");
    const provider = createOpenAICompatible({ name: "tollgate", apiKey: organization.token, baseURL: service.baseUrl });
    const ask: Ask = async () => {
      const { text } = streamText({
        model: provider("failing"),
        prompt: PROMPT,
        maxOutputTokens: 50,
        maxRetries: 4,
        onError: () => {},
      });
      return await text;
    };
    for (let intent = 0; intent < 20; intent += 1) await untilAnswered(ask, organization.token, `${intent}`);
    const charges = await chargesOf(service, organization);
    expect(charges.filter(({ ending }) => ending === "complete")).toHaveLength(20);
    expect(charges.some(({ ending }) => ending === "upstream_failed")).toBe(true);
    expect(charges.every(({ retry }) => retry === null)).toBe(true);
  });
});

describe("a retry", () => {
  const stream = { model: "cut", messages, max_tokens: 50, stream: true } as const;

  /** Sends a stream, breaks it or not, and returns its text as far as it was received. */
  async function attempt(
    { token }: Pick<Organization, "token">,
    {
      retries,
      body = stream,
      url,
    }: { retries?: number; body?: OpenAI.ChatCompletionCreateParamsStreaming; url?: string },
  ): Promise<string> {
    let text = "";
    try {
      const options = { ...headersOf(retries?.toString()), maxRetries: 0 };
      for await (const { choices } of await openai(token, url).chat.completions.create(body, options)) {
        text += choices[0]?.delta.content ?? "";
      }
    } catch {
      // Cut.
    }
    return text;
  }

  /** Lets the next streams of `cut` break, and those after them be complete. */
  function breakNext(count: number): void {
    let broken = 0;
    upstream.behave("cut", (request) => {
      broken += 1;
      return broken <= count ? breaksInTheMiddle(request) : whole(request);
    });
  }

  /** Returns the amounts of an organization's charges and what they were credited, in their order. */
  const amounts = async (organization: Organization, at = service) =>
    (await chargesOf(at, organization)).map(({ amount, retry }) => [Math.abs(amount), retry?.credited ?? null]);

  test("A retry names its attempt in the statement and the request log, and its answer says what was charged.", async () => {
    breakNext(1);
    const organization = await makeOrganization(service, "1000");
    const body = { ...stream, stream_options: { include_usage: true } };
    await attempt(organization, { body });
    let cost: number | undefined;
    for await (const { usage } of await openai(organization.token).chat.completions.create(body, headersOf("1"))) {
      cost = (usage as { cost?: number } | undefined)?.cost ?? cost;
    }
    const [broken, retry] = await chargesOf(service, organization);
    const part = -(broken?.amount ?? 0);
    expect(part).toBeGreaterThan(SENT);
    expect(retry).toMatchObject({ ending: "complete", amount: -(WORDS.length - SENT) });
    expect(retry?.retry).toEqual({ of: broken?.id, credited: part });
    expect(cost).toBe(WORDS.length - SENT);
    const read = async (path: string) => (await operator(service).call("GET", path)).body as unknown;
    expect(await read(`/requests/${retry?.id}`)).toMatchObject({ charged: cost, retry: retry?.retry });
    expect(await read(`/requests/${broken?.id}`)).toMatchObject({ charged: part, retry: null });
    const { data } = (await read(`/organizations/${organization.id}/statement?kind=charge`)) as { data: unknown[] };
    expect(data.at(-1)).toMatchObject({ id: retry?.id, retry: retry?.retry });
    const csv = (await read(`/organizations/${organization.id}/statement.csv`)) as string;
    const lines = csv.trim().split(/\r?\n/);
    expect(lines[0]).toMatch(/,retry_of,retry_credited,token_name,total$/);
    expect(lines.find((line) => line.includes(retry?.id ?? "none"))).toContain(`,${broken?.id},${part}`);
  });

  test("Only one retry uses an attempt, however many are sent at once, and first attempts use none.", async () => {
    breakNext(1);
    const organization = await makeOrganization(service, "10000");
    await attempt(organization, {});
    const texts = await Promise.all([...Array(4).keys()].map((retries) => attempt(organization, { retries })));
    expect(texts).toEqual(texts.map(() => WORDS.join("")));
    const credited = (await amounts(organization)).filter(([, credit]) => credit !== null);
    expect(credited).toHaveLength(1);
    expect((await amounts(organization)).length).toBe(5);
  });

  test("A retry of a retry is charged what the whole intent was not charged yet.", async () => {
    breakNext(3);
    const organization = await makeOrganization(service, "1000");
    for (const retries of [0, 1, 2, 3]) await attempt(organization, { retries });
    const [first, second, third, last] = await amounts(organization);
    const input = (first?.[0] ?? 0) - SENT;
    const part = input + SENT;
    expect([first, second, third, last]).toEqual([
      [part, null],
      [0, part],
      [0, part],
      [WORDS.length - SENT, part],
    ]);
  });

  test("A retry with another token or body, or with an Idempotency-Key, is a new request.", async () => {
    const organization = await makeOrganization(service, "1000");
    const other = await makeToken(service, organization.id);
    breakNext(1);
    await attempt(organization, {});
    await attempt(other, { retries: 1 });
    await attempt(organization, { retries: 1, body: { ...stream, max_tokens: 51 } });
    await openai(organization.token).chat.completions.create(stream, {
      headers: { ...headersOf("1").headers, "Idempotency-Key": "one" },
    });
    expect((await amounts(organization)).filter(([, credit]) => credit !== null)).toEqual([]);
  });

  test("A client that leaves an answer and repeats it pays both.", async () => {
    const organization = await makeOrganization(service, "1000");
    upstream.behave("cut", answering({ words: WORDS, pauseMs: 30 }));
    const left = await openai(organization.token).chat.completions.create(stream);
    for await (const { choices } of left) if (choices[0]?.delta.content) break;
    await expect.poll(async () => (await chargesOf(service, organization)).length).toBe(1);
    await attempt(organization, { retries: 1 });
    const [first, second] = await chargesOf(service, organization);
    expect(first).toMatchObject({ ending: "client_disconnected" });
    expect(second).toMatchObject({ ending: "complete", retry: null });
    expect(-(second?.amount ?? 0)).toBeGreaterThanOrEqual(WORDS.length);
  });

  const lineOf = (content: string) =>
    `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`;
  const CAUSES: Record<string, Behaviour> = {
    "its own request": async ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(lineOf("word"));
      const error = { message: "The response was filtered.", code: "content_filter", status: 400 };
      response.end(`data: ${JSON.stringify({ error })}\n\n`);
    },
    "a client that reads nothing for 20 seconds": async ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const endsAtMs = Date.now() + 20_000; Date.now() < endsAtMs; await sleep(5)) {
        if (!response.writableNeedDrain) response.write(lineOf("word ".repeat(4_000)));
      }
      response.destroy();
    },
  };
  test.each(Object.entries(CAUSES))("An answer that broke by %s is not credited.", async (_cause, breaks) => {
    const organization = await makeOrganization(service, "1000");
    const ended = Promise.withResolvers<void>();
    upstream.behave("cut", async (request) => {
      await breaks(request);
      ended.resolve();
    });
    const answer = await openai(organization.token).chat.completions.create(stream, headersOf("0"));
    await ended.promise;
    const read = async () => {
      for await (const _ of answer);
    };
    await read().catch(() => {});
    upstream.behave("cut", whole);
    await attempt(organization, { retries: 1 });
    const [first, second] = await chargesOf(service, organization);
    expect(first).toMatchObject({ ending: "upstream_failed" });
    expect(second).toMatchObject({ ending: "complete", retry: null });
  });

  describe("after an end of the service", () => {
    let running: RunningService | undefined;
    afterEach(() => running?.end());

    test.each(["SIGTERM", "SIGKILL"] as const)("A stream that %s cut is credited to its retry.", async (signal) => {
      const dataDir = await makeDirectory();
      const config = configOf({ server: { drainSeconds: 0.2 } });
      upstream.behave("cut", answering({ words: [...WORDS, ...WORDS], pauseMs: 100 }));
      const first = await startProcess({ config, dataDir });
      running = first;
      const organization = await makeOrganization(first, "1000");
      const cut = attempt(organization, { retries: 0, url: first.baseUrl });
      await expect.poll(() => checkpointsIn(dataDir, organization.id).some((output) => output > 2)).toBe(true);
      await first.end(signal);
      await cut;
      upstream.behave("cut", whole);
      const second = await startService({ config, dataDir });
      running = second;
      await expect.poll(async () => (await chargesOf(second, organization)).length).toBe(1);
      expect(await attempt(organization, { retries: 1, url: second.baseUrl })).toBe(WORDS.join(""));
      const [broken, retry] = await chargesOf(second, organization);
      expect(broken?.ending).toBe(signal === "SIGTERM" ? "service_failed" : "recovered");
      expect(retry?.retry).toEqual({ of: broken?.id, credited: -(broken?.amount ?? 0) });
      expect(await second.tollgate("ledger", "verify")).toMatchObject({ ok: true });
    });

    test.skipIf(!hasPostgres)("A retry on another node of the same PostgreSQL is credited.", async () => {
      const database = await createTestDatabase();
      const options = { config: configOf(), databaseUrl: database.url };
      const first = await startService(options);
      running = await startService(options);
      try {
        const organization = await makeOrganization(first, "1000");
        breakNext(1);
        await attempt(organization, { retries: 0, url: first.baseUrl });
        await attempt(organization, { retries: 1, url: running.baseUrl });
        const [broken, retry] = await chargesOf(first, organization);
        expect(retry?.retry).toEqual({ of: broken?.id, credited: -(broken?.amount ?? 0) });
        expect(await first.tollgate("ledger", "verify")).toMatchObject({ ok: true });
      } finally {
        await Promise.all([first.end(), running.end()]);
        running = undefined;
        await database.drop();
      }
    });
  });
});
