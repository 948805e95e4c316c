import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeOrganization, type Organization, type RunningService, startService, usageOf } from "../support/service.ts";
import { expectEnvelope } from "./envelope.ts";
import { exchangeRaw } from "./raw-http.ts";

const COMPLETIONS = "/v1/chat/completions";

let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  service = await startService({ config: { limits: { requestsPerMinute: 1_000_000 } } });
  organization = await makeOrganization(service, "1000");
});

afterAll(async () => {
  await service?.end();
});

const creditsUsed = async () => {
  const { creditsUsed, creditsHeld } = await usageOf(service, organization.token);
  expect(creditsHeld).toBe(0);
  return Math.round(creditsUsed * 1e6);
};

describe("Invalid HTTP", () => {
  const body = '{"model":"sandbox/echo","messages":[{"role":"user","content":"hello"}]}';
  const length = `Content-Length: ${body.length}`;
  const json = "Content-Type: application/json";
  const post1 = (fields: string[], text = body) =>
    ["POST /v1/chat/completions HTTP/1.1", ["Host: x", "@", json, ...fields], text] as const;
  const get = (target: string, fields: string[] = ["Host: x", "@"], method = "GET") =>
    [`${method} ${target} HTTP/1.1`, fields, ""] as const;
  type Case = [
    name: string,
    request: readonly [line: string, fields: readonly string[], body: string],
    status: number,
    code?: string,
  ];
  const cases: Case[] = [
    ["no Host", get("/v1/models", ["@"]), 400, "invalid_value"],
    ["HTTP/1.0", ["GET /v1/models HTTP/1.0", ["@"], ""], 200],
    ["HTTP/2", ["PRI * HTTP/2.0", [], "SM\r\n\r\n"], 400, "invalid_value"],
    ["TLS", ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [], ""], 400, "invalid_value"],
    ["a method that there is not", get("/v1/models", undefined, "BREW"), 400, "invalid_value"],
    ["CONNECT", get("example.com:443", undefined, "CONNECT"), 400, "invalid_value"],
    ["QUERY", get("/v1/models", undefined, "QUERY"), 405, "method_not_allowed"],
    ["TRACE", get("/v1/models", undefined, "TRACE"), 405, "method_not_allowed"],
    ["an upgrade", get("/v1/models", ["Host: x", "@", "Connection: upgrade", "Upgrade: websocket"]), 200],
    ["two lengths", post1([length, "Content-Length: 3"]), 400, "invalid_value"],
    ["a length below zero", post1(["Content-Length: -3"]), 400, "invalid_value"],
    ["a length beyond all numbers", post1(["Content-Length: 99999999999999999999"]), 400, "invalid_value"],
    [
      "a length and chunks (smuggling)",
      post1([length, "Transfer-Encoding: chunked"], `0\r\n\r\n${body}`),
      400,
      "invalid_value",
    ],
    [
      "chunks and another coding after them",
      post1(["Transfer-Encoding: chunked, gzip"], "0\r\n\r\n"),
      400,
      "invalid_value",
    ],
    ["a chunk without a size", post1(["Transfer-Encoding: chunked"], "zz\r\nhello"), 400, "invalid_value"],
    ["no length and no chunks", post1([], ""), 400, "invalid_json"],
    ["a folded header", get("/v1/models", ["Host: x", "X-A: b\r\n c"]), 400, "invalid_value"],
    ["a NUL in a header", get("/v1/models", ["Host: x", "X-A: b\0c"]), 400, "invalid_value"],
    ["a space before the colon", get("/v1/models", ["Host : x"]), 400, "invalid_value"],
    ["headers of 20 KB", get("/v1/models", ["Host: x", `X-A: ${"a".repeat(20_000)}`]), 431, "invalid_value"],
    ["5,000 headers", get("/v1/models", ["Host: x", ...Array(5000).fill("a: b")]), 431, "invalid_value"],
    ["an address of 20 KB", get(`/v1/models/${"a".repeat(20_000)}`), 431, "invalid_value"],
    ["an address of 15 KB", get(`/v1/models/${"a".repeat(15_000)}`), 404, "model_not_found"],
    ["Expect: 100-continue", post1([length, "Expect: 100-continue"]), 200],
    ["another expectation", post1([length, "Expect: more"]), 200],
    ["the same token twice", get("/v1/models", ["Host: x", "@", "@"]), 400, "invalid_value"],
    ["a token and a false one", get("/v1/models", ["Host: x", "@", "authorization: Bearer x"]), 400, "invalid_value"],
    ["a token in the query too", get("/v1/models?access_token=x"), 400, "invalid_value"],
    ["CR, LF and NUL in a path", get("/v1/models/%00%0d%0ax-evil:%201"), 404, "model_not_found"],
    ["../", get("/v1/models/../usage"), 404, "model_not_found"],
    ["%2e%2e", get("/v1/models/%2e%2e%2f%2e%2e/usage"), 404, "model_not_found"],
    ["../ out of the documentation", get("/docs/static/..%2f..%2f..%2fpackage.json", ["Host: x"]), 404, "not_found"],
    ["../ up to the root", get("/docs/static/../../../../../../etc/passwd", ["Host: x"]), 404, "not_found"],
    ["half an escape", get("/v1/models/%E0%A4%A"), 404, "not_found"],
    ["no escape", get("/%zz"), 404, "not_found"],
    ["two slashes", get("//v1/models"), 200],
    ["two slashes and no more", get("//"), 200],
    ["slashes and an escape", get("//v1//models/%2f%2f/"), 404, "model_not_found"],
    ["another host and no path", get("http://example.com/v1/none"), 404, "not_found"],
    ["another host in the target", get("http://example.com/v1/models"), 200],
    ["OPTIONS without an origin", get("/v1/models", ["Host: x"], "OPTIONS"), 204],
    ["OPTIONS *", get("*", ["Host: x"], "OPTIONS"), 404],
    ["HEAD", get("/v1/none", ["Host: x"], "HEAD"), 404],
    ["HEAD of a route with only POST", get(COMPLETIONS, ["Host: x"], "HEAD"), 405],
  ];
  test.each(cases)("%s", async (_name, [line, fields, text], status, code) => {
    const authorization = `Authorization: Bearer ${organization.token}`;
    const head = [line, ...fields.map((field) => (field === "@" ? authorization : field))].join("\r\n");
    const before = await creditsUsed();
    const ended = line.startsWith("HEAD") ? "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(8) : "";
    const [answer] = await exchangeRaw(service.url, Buffer.from(`${head}\r\n\r\n${text}${ended}`, "latin1"));
    expect(answer?.status).toBe(status);
    expect(answer?.headers["x-request-id"]).toMatch(/^req_/);
    expect(answer?.headers).not.toHaveProperty("x-evil");
    if (code !== undefined) expect(expectEnvelope(status, answer?.body ?? "", status)).toBe(code);
    if (status !== 200) expect(await creditsUsed()).toBe(before);
  });

  test("Pipelined requests are answered in their order, each once.", async () => {
    const before = await creditsUsed();
    const one = (text: string, token = organization.token) =>
      `POST ${COMPLETIONS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n${json}\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
    const texts = ["first", "second", "third"].map((word) => body.replace("hello", word));
    const answers = await exchangeRaw(
      service.url,
      [...texts.map((text) => one(text)), one(body, "x"), one("{")].join(""),
      5,
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 401, 400]);
    const told = answers.slice(0, 3).map((answer) => JSON.parse(answer.body).choices[0].message.content);
    expect(told).toEqual(["first", "second", "third"]);
    const costs = answers.map(({ headers }) => Math.round(Number(headers["x-credits-charged"] ?? 0) * 1e6));
    expect(await creditsUsed()).toBe(before + costs.reduce((sum, cost) => sum + cost, 0));
  });
});

test("Requests with different tokens on one connection are answered for their own organizations.", async () => {
  const { token: otherToken, id: otherId } = await makeOrganization(service, "7");
  const usage = (token: string) => `GET /v1/usage HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  const tokens = [organization.token, otherToken, "sk-tg-none", otherToken, organization.token, organization.token];
  const answers = await exchangeRaw(service.url, tokens.map(usage).join(""), tokens.length);
  const expected = [organization.id, otherId, undefined, otherId, organization.id, organization.id];
  expect(answers.map(({ status }) => status)).toEqual(expected.map((id) => (id === undefined ? 401 : 200)));
  for (const [index, id] of expected.entries()) if (id !== undefined) expect(answers[index]?.body).toContain(id);
});

test("Afterwards the service is ready, and has logged no defect.", async () => {
  expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
  expect(service.output()).not.toMatch(/"level":"(error|fatal)"/);
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});
