import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { PostgresProxy } from "../support/postgres-proxy.ts";
import {
  eventsOf,
  makeDirectory,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  type ServiceProcess,
  send,
  startProcess,
  startService,
  usageOf,
} from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
/** An output token costs one credit, the input nothing. */
const COST = 5;
const messages = [{ role: "user", content: "go" }];
const tool = { type: "function", function: { name: "look", parameters: { type: "object" } } };
const call = { id: "call_1", type: "function", function: { name: "look", arguments: '{"a":1}' } };
const LONG = 2_000_000;

let upstream: Upstream;
/** The next answers of "gated" wait for this promise. */
let gate = Promise.withResolvers<void>();

beforeAll(async () => {
  upstream = await startUpstream();
  const logprobs = { content: [{ token: "one", logprob: -0.5, bytes: null, top_logprobs: [] }] };
  upstream.behave("plain", answering({ words: ["one ", "two ", "thr\u2028ee"], usage }));
  upstream.behave("long", answering({ words: Array(LONG / 100).fill("word ".repeat(20)), usage }));
  const words = answering({ words: Array(2_000).fill("word "), usage, pauseMs: 50 });
  // Streamed, it writes for a long time; otherwise it never answers.
  upstream.behave("slow", (request) => (request.body.stream === true ? words(request) : undefined));
  upstream.behave("gated", async (request) => {
    await gate.promise;
    await answering({ words: ["open"], usage })(request);
  });
  upstream.behave("calling", ({ body, response }) => {
    const common = { id: "u", created: 1, model: "m" };
    if (body.stream !== true) {
      const message = { role: "assistant", content: null, tool_calls: [call] };
      const choices = [{ index: 0, message, logprobs, finish_reason: "tool_calls" }];
      return sendJson(response, 200, { ...common, object: "chat.completion", choices, usage });
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (fields: object) => response.write(`data: ${JSON.stringify({ ...common, ...fields })}\n\n`);
    const begun = { index: 0, id: call.id, type: "function", function: { name: "look", arguments: '{"a"' } };
    event({ choices: [{ index: 0, delta: { role: "assistant", tool_calls: [begun] }, logprobs }] });
    event({ choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { arguments: ":1}" } }] } }] });
    event({ choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] });
    event({ choices: [], usage });
    response.end("data: [DONE]\n\n");
  });
  upstream.behave("failing", ({ response }) => sendJson(response, 500, { error: { message: "no" } }));
});
afterAll(() => upstream?.close());

const configOf = () => ({
  // A killed service's next start ends its holds long before they expire.
  ledger: { renewSeconds: 0.3, sweepSeconds: 0.3 },
  limits: { requestsPerMinute: 10_000, tokensPerMinute: 100_000_000, concurrentRequests: 1000 },
  providers: [upstream.provider],
  models: ["plain", "long", "slow", "gated", "calling", "failing"].map((id) => ({
    id,
    price: { input: 0, output: 1_000_000 },
    routes: [{ provider: "up", model: id }],
  })),
});

const callsOf = (model: string) => upstream.requests.filter(({ body }) => body.model === model).length;
const bodyOf = (model: string, fields: object = {}) => ({ model, messages, max_tokens: 20, ...fields });

interface Asked {
  at: RunningService;
  token: string;
  key: string;
  body: object;
  signal?: AbortSignal;
}
function ask({ at, token, key, body, signal }: Asked): Promise<Response> {
  const options = { headers: { "idempotency-key": key }, ...(signal && { signal }) };
  return send(at, "/v1/chat/completions", token, body, options);
}
const replayed = (answer: Response) => answer.headers.get("x-tollgate-idempotent-replay");
async function codeOf(answer: Response): Promise<unknown[]> {
  const { error } = (await answer.json()) as { error: { code: string } };
  return [answer.status, error.code];
}

interface Told {
  ids: unknown[];
  message: Record<string, unknown>;
  finishReason: unknown;
  /** Their content. */
  logprobs: unknown;
  usage: unknown;
}
/** Returns the content of a response, streamed or not. */
async function told(answer: Response): Promise<Told> {
  expect(answer.status).toBe(200);
  if (!answer.headers.get("content-type")?.includes("event-stream")) {
    const { id, created, model, choices, usage } = JSON.parse(await answer.text());
    const { message, finish_reason, logprobs } = choices[0];
    return { ids: [id, created, model], message, finishReason: finish_reason, logprobs: logprobs?.content, usage };
  }
  const events = eventsOf(await answer.text());
  expect(events.pop()).toBe("[DONE]");
  const all: Told = { ids: [], message: {}, finishReason: null, logprobs: undefined, usage: null };
  for (const { id, created, model, choices, usage } of events.map((event) => JSON.parse(event))) {
    all.ids = [id, created, model];
    all.usage ??= usage ?? null;
    const { delta, finish_reason, logprobs } = choices[0];
    all.finishReason ??= finish_reason;
    all.logprobs ??= logprobs?.content;
    all.message.content = `${all.message.content ?? ""}${delta.content ?? ""}`;
    for (const { id, function: named } of delta.tool_calls ?? []) {
      const begun = (all.message.call ?? ["", "", ""]) as string[];
      all.message.call = [id, named.name, named.arguments].map((part, at) => `${begun[at]}${part ?? ""}`);
    }
  }
  return all;
}
const usedBy = async (at: RunningService, token: string) => {
  const { creditsUsed, creditsHeld } = await usageOf(at, token);
  return { creditsUsed, creditsHeld };
};

describe.each(["SQLite", "PostgreSQL"] as const)("%s", (store) => {
  const isSkipped = store === "PostgreSQL" && !hasPostgres;
  let database: TestDatabase | undefined;
  let dataDir: string;
  let service: ServiceProcess;
  let organization: Organization;
  let stranger: Organization;
  /** Another token of the organization. */
  let other: { token: string };
  const start = () => startProcess({ config: configOf(), dataDir, ...(database && { databaseUrl: database.url }) });

  beforeAll(async () => {
    if (isSkipped) return;
    if (store === "PostgreSQL") database = await createTestDatabase();
    dataDir = await makeDirectory();
    service = await start();
    organization = await makeOrganization(service, "100000");
    stranger = await makeOrganization(service, "100");
    other = await makeToken(service, organization.id);
  });
  afterAll(async () => {
    await service?.end();
    await database?.drop();
  });
  const askWith = (key: string, body: object, more: Partial<Asked> = {}) =>
    ask({ at: service, token: organization.token, key, body, ...more });

  // Each store, and each form of an answer: what a store keeps of one is the same in both forms.
  describe.skipIf(isSkipped).each(store === "SQLite" ? [false, true] : [true])("stream: %s", (stream) => {
    const body = (model: string, fields: object = {}) => bodyOf(model, { stream, ...fields });
    const asking = (key: string, asked: object, more: Partial<Asked> = {}) => askWith(`${key} ${stream}`, asked, more);

    test.each([
      ["plain", {}],
      ["calling", { tools: [tool], logprobs: true }],
    ])("A repeated request gets the first response again, and is charged once: %s.", async (model, fields) => {
      const { creditsUsed: before } = await usedBy(service, organization.token);
      const calls = callsOf(model);
      const first = await asking(`same ${model}`, body(model, fields));
      const second = await asking(`same ${model}`, body(model, { ...fields, n: null }));
      expect([replayed(first), replayed(second)]).toEqual([null, "true"]);
      for (const header of ["x-tollgate-route", "x-credits-charged"]) {
        expect(second.headers.get(header)).toBe(first.headers.get(header));
      }
      const answer = await told(first);
      expect(answer.usage).toMatchObject({ total_tokens: 15, cost: COST });
      expect(await told(second)).toEqual(answer);
      expect(callsOf(model)).toBe(calls + 1);
      expect(await usedBy(service, organization.token)).toEqual({ creditsUsed: before + COST, creditsHeld: 0 });
    });

    test("Of 50 concurrent requests, one is called and charged, and the others get 409 or its response.", async () => {
      const { creditsUsed: before } = await usedBy(service, organization.token);
      gate = Promise.withResolvers();
      const calls = callsOf("gated");
      const asked = Array.from({ length: 50 }, () => asking("at once", body("gated")));
      await expect.poll(() => callsOf("gated")).toBe(calls + 1);
      setTimeout(() => gate.resolve(), 100);
      const answers = await Promise.all(asked);
      const given = answers.filter(({ status }) => status === 200);
      expect(given.filter((answer) => replayed(answer) === null)).toHaveLength(1);
      for (const answer of answers.filter(({ status }) => status !== 200)) {
        expect(answer.headers.get("retry-after")).toBe("1");
        expect(await codeOf(answer)).toEqual([409, "idempotency_in_progress"]);
      }
      const [first, ...others] = await Promise.all(given.map(told));
      for (const replay of others) expect(replay).toEqual(first);
      expect(await told(await asking("at once", body("gated")))).toEqual(first);
      expect(callsOf("gated")).toBe(calls + 1);
      expect(await usedBy(service, organization.token)).toEqual({ creditsUsed: before + COST, creditsHeld: 0 });
    });

    test("A key belongs to a token and to those that rotations made of it; to every other token it is unknown.", async () => {
      const { token, tokenId } = await makeToken(service, organization.id);
      const first = await told(await asking("whose", body("plain"), { token }));
      let successor = { id: tokenId, token };
      for (const _ of [1, 2]) {
        successor = await service.tollgate("token", "rotate", successor.id, "--overlap", "1h");
        expect(await told(await asking("whose", body("plain"), { token: successor.token }))).toEqual(first);
      }
      expect(await told(await asking("whose", body("plain"), { token }))).toEqual(first);
      for (const [another, fields] of [
        [other, {}],
        [organization, { max_tokens: 21 }],
        [stranger, {}],
      ] as const) {
        const { creditsUsed: before } = await usedBy(service, another.token);
        const answer = await asking("whose", body("plain", fields), { token: another.token });
        expect(replayed(answer)).toBeNull();
        expect((await told(answer)).ids).not.toEqual(first.ids);
        expect(await usedBy(service, another.token)).toEqual({ creditsUsed: before + COST, creditsHeld: 0 });
      }
    });

    test("A key with another body is rejected.", async () => {
      await told(await asking("bodies", body("plain")));
      expect(await codeOf(await asking("bodies", body("plain", { max_tokens: 21 })))).toEqual([
        422,
        "idempotency_mismatch",
      ]);
      expect(await codeOf(await asking("bodies", bodyOf("plain", { stream: !stream })))).toEqual([
        422,
        "idempotency_mismatch",
      ]);
    });

    test("A key with the same body at another endpoint is rejected.", async () => {
      const headers = { "idempotency-key": `endpoints ${stream}` };
      await told(await asking("endpoints", body("plain")));
      const { token } = organization;
      for (const path of ["/v1/messages", "/v1/responses"]) {
        const asked = path === "/v1/messages" ? body("plain") : { model: "plain", input: "go", stream };
        const answer = await send(service, path, token, asked, { headers });
        expect([path, answer.status]).toEqual([path, 422]);
      }
    });

    test("A request that fails releases the key.", async () => {
      const calls = callsOf("failing");
      for (const _ of [1, 2])
        expect(await codeOf(await asking("errors", body("failing")))).toEqual([502, "upstream_error"]);
      expect(callsOf("failing")).toBeGreaterThanOrEqual(calls + 2);
      expect(replayed(await asking("errors", body("plain")))).toBeNull();
    });

    test("A request whose client disconnects keeps the key, without a response.", async () => {
      const leaving = new AbortController();
      const calls = callsOf("slow");
      const asked = asking("left", body("slow"), { signal: leaving.signal }).then((answer) => answer.text());
      await expect.poll(() => callsOf("slow")).toBe(calls + 1);
      expect(await codeOf(await asking("left", body("slow")))).toEqual([409, "idempotency_in_progress"]);
      leaving.abort();
      await expect(asked).rejects.toThrow();
      await expect.poll(async () => (await usedBy(service, organization.token)).creditsHeld).toBe(0);
      const again = await asking("left", body("slow"));
      expect(again.headers.get("x-should-retry")).toBe("false");
      expect(await codeOf(again)).toEqual([409, "idempotency_interrupted"]);
      expect(callsOf("slow")).toBe(calls + 1);
    });

    test("A response of more than 1 MiB is sent and charged once, and not stored.", async () => {
      const answer = await told(await asking("long", body("long")));
      expect(String(answer.message.content).length).toBe(LONG);
      expect(await codeOf(await asking("long", body("long")))).toEqual([409, "idempotency_interrupted"]);
    });

    test("After kill -9, the key is in progress until the next start ends the hold, and interrupted from then on.", async () => {
      const calls = callsOf("slow");
      const asked = asking("killed", body("slow"))
        .then((answer) => answer.text())
        .catch(() => {});
      await expect.poll(() => callsOf("slow")).toBe(calls + 1);
      const kept = await told(await asking("before the kill", body("plain")));
      await service.end("SIGKILL");
      await asked;
      service = await start();
      const statuses = new Set<unknown>();
      await expect
        .poll(async () => {
          const [, code] = await codeOf(await asking("killed", body("slow")));
          statuses.add(code);
          return code;
        })
        .toBe("idempotency_interrupted");
      statuses.delete("idempotency_in_progress");
      expect([...statuses]).toEqual(["idempotency_interrupted"]);
      expect(callsOf("slow")).toBe(calls + 1);
      const again = await asking("before the kill", body("plain"));
      expect(replayed(again)).toBe("true");
      expect(await told(again)).toEqual(kept);
    });
  });

  test.skipIf(isSkipped)("An invalid key is rejected before any upstream call.", async () => {
    const calls = callsOf("plain");
    for (const key of ["", " ", "x".repeat(256), "caf\u00e9", "a\tb"]) {
      const answer = await askWith(key, bodyOf("plain"));
      expect([key, ...(await codeOf(answer))]).toEqual([key, 400, "invalid_value"]);
    }
    const twice = httpRequest(`${service.baseUrl}/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${organization.token}`,
        "content-type": "application/json",
        "idempotency-key": ["a", "a"],
      },
    });
    twice.end(JSON.stringify(bodyOf("plain")));
    const [answer] = await once(twice, "response");
    answer.resume();
    expect(answer.statusCode).toBe(400);
    expect(callsOf("plain")).toBe(calls);
    expect((await askWith("x".repeat(255), bodyOf("plain"))).status).toBe(200);
    expect((await askWith('"quo ted, {}"', bodyOf("plain"))).status).toBe(200);
  });

  test.skipIf(isSkipped)("The OpenAPI document has the header, and browsers may read the replay header.", async () => {
    const { paths } = JSON.parse(await (await fetch(`${service.url}/openapi.json`)).text());
    expect(paths["/v1/chat/completions"].post.parameters).toMatchObject([
      { in: "header", name: "Idempotency-Key", required: false, schema: { type: "string", maxLength: 255 } },
      { in: "header", name: "X-Stainless-Retry-Count", required: false },
      { in: "header", name: "x-tollgate-max-cost", required: false },
    ]);
    const answer = await send(service, "/v1/models", organization.token, undefined, {
      headers: { origin: "http://a.b" },
    });
    expect(answer.headers.get("access-control-expose-headers")).toContain("x-tollgate-idempotent-replay");
  });

  test.skipIf(isSkipped)("Afterwards the ledger balances.", async () => {
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });
});

describe.skipIf(!hasPostgres)("A response that ends while the store is unavailable", () => {
  test("The response is replayed once the spool is committed.", async () => {
    const database = await createTestDatabase();
    const proxy = await PostgresProxy.open(database.url);
    const service = await startService({ config: configOf(), databaseUrl: proxy.url });
    try {
      const { token } = await makeOrganization(service, "1000");
      const asked = { at: service, token, key: "away", body: bodyOf("gated", { stream: true }) };
      gate = Promise.withResolvers();
      const calls = callsOf("gated");
      const first = ask(asked);
      await expect.poll(() => callsOf("gated")).toBe(calls + 1);
      await proxy.leave();
      gate.resolve();
      const answer = await told(await first);
      expect(await codeOf(await ask(asked))).toEqual([503, "store_unavailable"]);
      await proxy.comeBack();
      await expect.poll(async () => (await usedBy(service, token)).creditsUsed).toBe(COST);
      const again = await ask(asked);
      expect(replayed(again)).toBe("true");
      expect(await told(again)).toEqual(answer);
      expect(callsOf("gated")).toBe(calls + 1);
    } finally {
      await service.end();
      await proxy.close();
      await database.drop();
    }
  });
});
