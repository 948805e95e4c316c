import { randomInt } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { crc32 } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { endpoints } from "../../src/http/routing.ts";
import { type Collector, spansOf, startCollector } from "../support/collector.ts";
import { createTestDatabase, type TestDatabase } from "../support/postgres.ts";
import {
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startProcess,
  startService,
} from "../support/service.ts";
import { answering, type Behaviour, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";
import { expectEnvelope } from "./envelope.ts";
import { dial, exchangeRaw } from "./raw-http.ts";

const COMPLETIONS = "/v1/chat/completions";
/** Secrets in all places that could leak. None may appear anywhere else. */
const CANARY = {
  apiKey: "sk-canary-apikey-5c1f0e7a",
  header: "canary-header-77ab12cd",
  prompt: "canaryprompt",
  upstreamBody: "canaryupstream",
  password: "canary-password-31fe",
  bearer: "canarybearer123456",
  metricsToken: "canary-metrics-token-8d21",
  exportHeader: "canary-export-header-90fe",
};
const price = { input: 1, output: 1 };
const usage = { prompt_tokens: 2, completion_tokens: 1, total_tokens: 3 };
const TOKENS = 1000;
/** Upstream statuses for invalid requests: the caller receives the reason without secrets. */
const TOLD = [400, 413];

let upstream: Upstream;
let collector: Collector;
let service: RunningService;
let mine: Organization;
let foreign: Organization;
let answers = "";

const html: Behaviour = ({ response }) => {
  response.writeHead(200, { "content-type": "text/html" }).end(CANARY.upstreamBody);
};
/** Quotes the service's credentials as upstreams do: whole, in parts, and with space in it. */
const quoted = ({ authorization, "x-secret": header }: IncomingHttpHeaders) =>
  [authorization, header].flatMap((secret) => {
    const text = String(secret);
    return [
      text,
      text.slice(0, 23),
      text.slice(-9),
      text.slice(-20).split("").join(" "),
      text.slice(-20).toUpperCase(),
    ];
  });
const failing = (status: number): Behaviour => {
  return ({ body, response, headers }) => {
    const words = `${CANARY.upstreamBody} ${quoted(headers).join(" or ")} ${JSON.stringify(body.messages)} at http://inner.canaryupstream.internal:81/x`;
    sendJson(response, status, { error: { message: words, code: words, type: words }, stack: words });
  };
};
const breaking: Behaviour = ({ body, response, headers }) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write('data: {"choices":[{"index":0,"delta":{"content":"fine "}}]}\n\n');
  const message = `${CANARY.upstreamBody} ${quoted(headers).join(" or ")} ${JSON.stringify(body)}`;
  response.end(`data: ${JSON.stringify({ error: { message, code: message } })}\n\n`);
};
const nonsense: Behaviour = ({ body, response }) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.end(`data: {${CANARY.upstreamBody} ${JSON.stringify(body)}\n\n`);
};
const behaviours: Record<string, Behaviour> = {
  fine: answering({ words: ["fine"], usage }),
  html,
  breaking,
  nonsense,
  reset: ({ response }) => void response.destroy(),
  ...Object.fromEntries([401, 403, 404, 429, 500, 503].map((status) => [`status-${status}`, failing(status)])),
};

beforeAll(async () => {
  [upstream, collector] = await Promise.all([startUpstream(), startCollector()]);
  for (const [model, behaviour] of Object.entries(behaviours)) upstream.behave(model, behaviour);
  for (const status of TOLD) upstream.behave(`told-${status}`, failing(status));
  const nobody = "http://127.0.0.1:9/v1";
  const secrets = { apiKey: CANARY.apiKey, headers: { "x-secret": CANARY.header } };
  service = await startService({
    environment: { LOG_LEVEL: "debug" },
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000 },
      metrics: { token: CANARY.metricsToken },
      telemetry: { endpoint: collector.url, headers: { "x-key": CANARY.exportHeader }, metricsSeconds: 1 },
      providers: [
        { id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl, ...secrets },
        { id: "down", kind: "openai-compatible", baseUrl: nobody, ...secrets },
      ],
      models: [
        ...[...Object.keys(behaviours), ...TOLD.map((status) => `told-${status}`)].map((id) => ({
          id,
          price,
          routes: [{ provider: "up", model: id }],
        })),
        { id: "down", price, routes: [{ provider: "down", model: "down" }] },
      ],
    },
  });
  mine = await makeOrganization(service, "1000");
  foreign = await makeOrganization(service, "777");
});

afterAll(async () => {
  await service?.end();
  await Promise.all([upstream?.close(), collector?.close()]);
});

/** Sends a request and stores the headers and the body of the response. */
async function ask(path: string, token: string | null, body?: unknown, options?: RequestInit): Promise<Response> {
  const answer = await send(service, path, token, body, options);
  const copy = answer.clone();
  answers += `${JSON.stringify([...answer.headers])}\n${await answer.text()}\n`;
  return copy;
}

const prompt = (fields: object = {}) => ({ messages: [{ role: "user", content: `${CANARY.prompt} text` }], ...fields });
/** Expects that a text has no part of a provider's credentials, from eight characters on, whatever its case and space. */
function expectNoParts(text: string): void {
  const ink = text.replaceAll(/\s/g, "").toLowerCase();
  for (const secret of [CANARY.apiKey, CANARY.header]) {
    for (let at = 0; at + 8 <= secret.length; at += 1) expect(ink).not.toContain(secret.slice(at, at + 8));
  }
}

/** Returns the log since the start; the last line may be incomplete. */
function logLines(): string[] {
  const lines = service.output().split("\n");
  return lines.slice(lines.findIndex((line) => line.startsWith("curl ")) + 1, -1);
}

describe("Secrets in every field", () => {
  const models = [...Object.keys(behaviours), "down", "none-such", "sandbox/fault"];
  test.each(models.flatMap((model) => [false, true].map((stream) => [model, stream] as const)))(
    "%s, streamed: %s",
    async (model, stream) => {
      const answer = await ask(COMPLETIONS, mine.token, prompt({ model, stream }));
      const text = await answer.text();
      if (answer.status !== 200) expectEnvelope(answer.status, text);
      const quotes =
        model === "sandbox/fault"
          ? Object.values(CANARY).filter((one) => one !== CANARY.prompt)
          : Object.values(CANARY);
      for (const canary of quotes) expect(text.toLowerCase()).not.toContain(canary);
      expectNoParts(text);
    },
  );

  test.each(TOLD)("A public reason contains no key and no address: %i.", async (status) => {
    const answer = await ask(COMPLETIONS, mine.token, prompt({ model: `told-${status}` }));
    const text = await answer.text();
    expect(expectEnvelope(answer.status, text)).toBe("upstream_rejected");
    for (const secret of [CANARY.apiKey, CANARY.header, "inner.", ":81", upstream.baseUrl])
      expect(text).not.toContain(secret);
    expectNoParts(text);
  });

  test("Error responses contain no secrets.", async () => {
    const secret = `Bearer ${CANARY.bearer}`;
    await ask("/v1/usage", null, undefined, { headers: { authorization: secret } });
    await ask("/v1/usage", null, undefined, { headers: { authorization: `Basic ${CANARY.bearer}` } });
    await ask(`/v1/usage?access_token=${CANARY.bearer}`, null);
    await ask(COMPLETIONS, mine.token, `{"model":"${CANARY.prompt}`);
    await ask(COMPLETIONS, mine.token, `{"messages":"${CANARY.prompt}","model":"fine"}`);
    await ask(COMPLETIONS, mine.token, prompt({ model: "fine", metadata: { a: CANARY.prompt }, user: CANARY.prompt }));
    await exchangeRaw(service.url, `GET / HTTP/1.1\r\nHost : x\r\nAuthorization: ${secret}\r\n\r\n`);
    const leaving = dial(service.url);
    const head = `POST ${COMPLETIONS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${mine.token}\r\nContent-Type: application/json\r\n`;
    leaving.write(`${head}Content-Length: 999\r\n\r\n{"messages":"${CANARY.prompt}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
    leaving.destroy();
    expect(answers).not.toContain(CANARY.bearer);
  });

  test("The log contains no secrets and no tokens.", () => {
    const lines = logLines();
    expect(lines.length).toBeGreaterThan(20);
    const log = lines.join("\n");
    for (const canary of Object.values(CANARY)) expect(log.toLowerCase()).not.toContain(canary);
    expectNoParts(log);
    for (const { token } of [mine, foreign]) expect(log).not.toContain(token.slice(12));
    expect(log).not.toMatch(/bearer [^…"]{4}/i);
    expect(answers).not.toContain(mine.token.slice(0, 12));
  });

  test("Metrics and traces contain no secrets, no prompts and no ids of callers.", async () => {
    const metrics = await (await send(service, "/metrics", CANARY.metricsToken)).text();
    await vi.waitFor(() => expect(spansOf(collector).length).toBeGreaterThan(20), { timeout: 60_000 });
    const exported = collector.received.map(({ body }) => body.toString("latin1"));
    for (const text of [metrics, ...exported].map((one) => one.toLowerCase())) {
      for (const canary of Object.values(CANARY)) expect(text).not.toContain(canary);
      expectNoParts(text);
      for (const { id, token, tokenId } of [mine, foreign]) {
        for (const one of [id, token, tokenId]) expect(text).not.toContain(one.toLowerCase());
      }
    }
    expect(metrics).toContain("tollgate_store_up");
  });
});

test("Values of callers never break or color a line of the log.", async () => {
  const evil = 'x\r\n{"level":"error","msg":"forged"}\n\u001b[31mred\u2028\u0085';
  await ask(COMPLETIONS, mine.token, prompt({ model: evil, user: evil, metadata: { [evil.slice(0, 40)]: evil } }));
  await ask(COMPLETIONS, mine.token, { model: "sandbox/fault", messages: [{ role: "user", content: evil }] });
  await ask(COMPLETIONS, mine.token, { model: "status-500", messages: [{ role: "user", content: evil, name: evil }] });
  await ask(`/v1/models/${encodeURIComponent(evil)}`, mine.token, undefined, {
    headers: { "user-agent": "\u001b[31m".slice(1) },
  });
  for (const line of logLines()) {
    expect(JSON.parse(line)).toMatchObject({ time: expect.any(String), msg: expect.not.stringContaining("forged") });
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the test checks for these characters
    expect(line).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/);
  }
});

describe("Random tokens", () => {
  const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const randomText = (length: number) => Array.from({ length }, () => alphabet[randomInt(62)]).join("");
  const checksum = (body: string) => {
    let text = "";
    for (let rest = crc32(body); text.length < 6; rest = Math.floor(rest / 62)) text = alphabet[rest % 62] + text;
    return text;
  };
  /** A random token with a valid checksum. */
  const wellFormed = () => {
    const body = `sk-tg-${randomText(43)}`;
    return body + checksum(body);
  };
  const mistyped = () => {
    const at = 6 + randomInt(49);
    const other = mine.token[at] === "a" ? "b" : "a";
    return mine.token.slice(0, at) + other + mine.token.slice(at + 1);
  };
  const makers = [
    wellFormed,
    mistyped,
    () => `sk-tg-${randomText(49)}`,
    () => randomText(1 + randomInt(80)),
    () => mine.token.slice(0, -1),
  ];

  test(`${TOKENS} random tokens are rejected, and no row is written.`, async () => {
    // Checks the function above: it reproduces the checksum of a real token.
    expect(checksum(mine.token.slice(0, -6))).toBe(mine.token.slice(-6));
    const before = await service.tollgate("token", "list", "--org", mine.id);
    for (let sent = 0; sent < TOKENS; sent += 50) {
      const batch = Array.from({ length: 50 }, async (_, index) => {
        const token = (makers[(sent + index) % makers.length] ?? wellFormed)();
        const answer = await send(
          service,
          index % 2 === 0 ? "/v1/models" : COMPLETIONS,
          token,
          index % 2 === 0 ? undefined : {},
        );
        expect(expectEnvelope(answer.status, await answer.text())).toBe("invalid_token");
      });
      await Promise.all(batch);
    }
    expect(await service.tollgate("token", "list", "--org", mine.id)).toEqual(before);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });
});

describe("Every route with every caller", () => {
  const requestOf = (method: string, path: string) => {
    if (path === "/v1/images/generations") return { model: "sandbox/image", prompt: "hello" };
    if (path === "/v1/audio/speech") return { model: "sandbox/speech", input: "hello", voice: "a" };
    const model = path === "/v1/embeddings" ? "sandbox/embed" : "fine";
    if (path === "/v1/completions") return { model, prompt: "hello", max_tokens: 10 };
    if (path.includes(":generateContent")) return { contents: [{ role: "user", parts: [{ text: "hello" }] }] };
    return method === "POST" ? prompt({ model, max_tokens: 10, input: "hello" }) : undefined;
  };
  /** The calls of Gemini's API have the model and the method in their path. */
  const pathOf = (method: string, path: string) =>
    path.replace("*", method === "POST" && path.includes("/models/") ? "fine:generateContent" : "fine");
  const routes = endpoints.map(({ method, path, scope }) => [method, pathOf(method, path), scope] as const);

  test.each(routes)("%s %s without a token is rejected with 401.", async (method, path) => {
    const answer = await ask(path, null, requestOf(method, path));
    expect(expectEnvelope(answer.status, await answer.text())).toBe("missing_token");
  });

  test.each(routes)(
    "%s %s with another organization's token: tells of that organization alone",
    async (method, path) => {
      const answer = await ask(path, foreign.token, requestOf(method, path), {
        headers: { "openai-organization": mine.id, "x-organization-id": mine.id },
      });
      // A form is sent by its own tests.
      const refused = path === "/v1/audio/transcriptions" ? 415 : undefined;
      expect(answer.status).toBe(/^\/v1\/responses\/(?!input_tokens)/.test(path) ? 404 : (refused ?? 200));
      const text = `${await answer.text()}${JSON.stringify([...answer.headers])}`;
      expect(text).not.toContain(mine.id);
      expect(text).not.toContain(mine.tokenId);
    },
  );

  test.each(routes)("%s %s without its scope is rejected with 403.", async (method, path, scope) => {
    const scopes = ["chat.completions:write", "models:read", "usage:read"].filter((one) => one !== scope);
    const { token } = await makeToken(service, mine.id, { scopes });
    const answer = await ask(path, token, requestOf(method, path));
    expect(expectEnvelope(answer.status, await answer.text())).toBe("insufficient_scope");
  });

  test("A model that the token may not use gets the same response as an unknown model.", async () => {
    const { token } = await makeToken(service, mine.id, { models: ["fine"] });
    const [forbidden, absent] = await Promise.all(["html", "none"].map((id) => ask(`/v1/models/${id}`, token)));
    expect([forbidden?.status, absent?.status]).toEqual([404, 404]);
    const texts = [await forbidden?.text(), await absent?.text()].map((text) => text?.replace(/`\w+`/, ""));
    expect(texts[0]).toBe(texts[1]);
    expect(await (await ask("/v1/models", token)).text()).not.toContain("html");
  });

  test("A revoked token is rejected within a second.", async () => {
    const { token, tokenId } = await makeToken(service, mine.id);
    expect((await ask("/v1/models", token)).status).toBe(200);
    await service.tollgate("token", "revoke", tokenId);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    expect((await ask("/v1/models", token)).status).toBe(401);
  });
});

describe("A database that fails", () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(async () => {
    await database?.drop().catch(() => undefined);
  });

  test("No response and no log line contains its address or password.", async () => {
    const url = new URL(database.url);
    if (url.password === "") url.password = CANARY.password;
    const { password } = url;
    const running = await startProcess({ databaseUrl: url.href, environment: { LOG_LEVEL: "debug" } });
    try {
      const organization = await makeOrganization(running, "10");
      await database.drop();
      const told: string[] = [];
      for (const path of ["/v1/usage", COMPLETIONS, "/readyz"]) {
        const body = path === COMPLETIONS ? { ...prompt(), model: "sandbox/echo" } : undefined;
        const answer = await send(running, path, organization.token, body);
        expect(answer.status).toBe(503);
        told.push(await answer.text());
      }
      for (const text of [...told, running.output()]) expect(text).not.toContain(password);
      for (const text of told) expect(text).not.toContain(url.pathname.slice(1));
    } finally {
      await running.end("SIGKILL");
    }
  });
});
