import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";

let service: RunningService;
let token: string;

beforeAll(async () => {
  service = await startService();
  ({ token } = await makeOrganization(service, "10"));
});

afterAll(() => service?.end());

const completion = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }] };

interface Failure {
  error: { message: string; code: string };
}

describe("A path with a trailing or repeated slash is equivalent to the path without", () => {
  test.each([
    ["/v1/models/", "/v1/models"],
    ["//v1//models", "/v1/models"],
    ["/v1/models//", "/v1/models"],
    ["/v1/models/?any=1", "/v1/models"],
    ["/v1//models//sandbox/echo/", "/v1/models/sandbox/echo"],
    ["/v1/models/sandbox%2Fecho/", "/v1/models/sandbox/echo"],
    ["/v1/usage/", "/v1/usage"],
    ["/healthz/", "/healthz"],
    ["/openapi.json/", "/openapi.json"],
    ["//tokens/", "/tokens"],
    ["/admin/v1/organizations/", "/admin/v1/organizations"],
    ["//admin//v1/organizations", "/admin/v1/organizations"],
    ["/v1/nothing/", "/v1/nothing"],
    ["/v1/", "/v1"],
    ["/nothing//", "/nothing"],
  ])("GET %s", async (path, plain) => {
    const [found, expected] = await Promise.all([send(service, path, token), send(service, plain, token)]);
    expect(found.status).toBe(expected.status);
    expect(found.headers.get("content-type")).toBe(expected.headers.get("content-type"));
    expect(await found.text()).toBe(await expected.text());
  });

  test("A completion is generated and charged once.", async () => {
    for (const path of ["/v1/chat/completions/", "/v1//chat/completions"]) {
      const answer = await send(service, path, token, completion);
      expect(answer.status).toBe(200);
      expect(await answer.json()).toMatchObject({ choices: [{ message: { content: "hello" } }] });
    }
  });

  test("Other methods, preflights and credentials in the query get the same response as without the slash.", async () => {
    const wrong = await send(service, "/v1//chat/completions/", token);
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "POST, OPTIONS"]);
    expect(await wrong.json()).toMatchObject({ error: { code: "method_not_allowed" } });
    const deleted = await send(service, "/v1/models/", token, undefined, { method: "DELETE" });
    expect([deleted.status, deleted.headers.get("allow")]).toEqual([405, "GET, HEAD, OPTIONS"]);
    const admin = await send(service, "/admin/v1/session/", null, undefined, { method: "PUT" });
    expect(admin.status).toBe(405);
    expect((await send(service, "/v1/models/", token, undefined, { method: "HEAD" })).status).toBe(200);
    const headers = { origin: "https://app.example", "access-control-request-method": "POST" };
    const preflight = await send(service, "//v1/chat/completions/", null, undefined, { method: "OPTIONS", headers });
    expect([preflight.status, preflight.headers.get("access-control-allow-origin")]).toEqual([204, "*"]);
    const foreign = await send(service, "//admin/v1/session/", null, undefined, { method: "OPTIONS", headers });
    expect([foreign.status, foreign.headers.get("access-control-allow-origin")]).toEqual([405, null]);
    expect((await send(service, "/v1/models/?access_token=x", token)).status).toBe(400);
  });

  test("Gemini's clients reach a model whose name has a slash without 'models/'.", async () => {
    const contents = [{ role: "user", parts: [{ text: "hello" }] }];
    const whole = await send(service, "/v1beta/sandbox/echo:generateContent", token, { contents });
    const parts = [{ text: "hello" }];
    expect(await whole.json()).toMatchObject({ candidates: [{ content: { parts } }], modelVersion: "sandbox/echo" });
    const streamed = await send(service, "/v1beta/sandbox/echo:streamGenerateContent?alt=sse", token, { contents });
    expect([streamed.status, await streamed.text()]).toEqual([200, expect.stringContaining('"text":"hello"')]);
    expect((await send(service, "/v1beta/sandbox/echo", token)).status).toBe(404);
  });

  test("Gemini's API is also under /v1alpha, with its errors and its form of the models; /v1/models stays OpenAI's.", async () => {
    const contents = [{ role: "user", parts: [{ text: "hello" }] }];
    for (const path of ["/v1alpha/models/sandbox/echo", "/v1alpha/sandbox/echo", "//v1alpha/models/sandbox/echo"]) {
      const answer = await send(service, `${path}:generateContent`, token, { contents });
      expect(await answer.json()).toMatchObject({ candidates: [{ content: { parts: [{ text: "hello" }] } }] });
    }
    const models = await (await send(service, "/v1alpha/models", token)).json();
    expect(models).toEqual(await (await send(service, "/v1beta/models", token)).json());
    expect(models).toMatchObject({ models: expect.any(Array) });
    const unknown = await send(service, "/v1alpha/models/none:generateContent", token, { contents });
    expect(await unknown.json()).toMatchObject({ error: { code: 404, status: "NOT_FOUND" } });
    expect(await (await send(service, "/v1/models", token)).json()).toMatchObject({ object: "list" });
    expect((await send(service, "/v1alpha", token)).status).toBe(404);
  });

  test("A client whose base URL ends with a slash works.", async () => {
    const client = new OpenAI({ apiKey: token, baseURL: `${service.baseUrl}/`, maxRetries: 0 });
    expect((await client.models.list()).data.length).toBeGreaterThan(1);
  });
});

describe("A base URL without /v1", () => {
  const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
  const paths = [
    "/models",
    "/models/",
    "/models/sandbox/echo",
    "/chat/completions",
    "//chat/completions/",
    "/usage",
    "/completions",
    "/responses",
    "/embeddings",
    "/messages",
    "/messages/count_tokens",
    "/images/generations",
  ];

  test.each(paths)("%s is answered with a 404 that names the right base URL, for every method.", async (path) => {
    for (const method of methods) {
      const accept = { accept: "application/json" };
      const answer = await send(service, path, token, undefined, { method, headers: accept });
      expect([method, answer.status]).toEqual([method, 404]);
      expect(answer.headers.get("content-type")).toContain("application/json");
      if (method === "HEAD") continue;
      const { error } = (await answer.json()) as Failure;
      expect(error.code).toBe("not_found");
      expect(error.message).toBe(`Route not found. The path lacks /v1: set the base URL to ${service.baseUrl}.`);
    }
  });

  test("A client's list of models fails with that message instead of being empty.", async () => {
    const client = new OpenAI({ apiKey: token, baseURL: service.url, maxRetries: 0 });
    await expect(client.models.list()).rejects.toMatchObject({
      status: 404,
      message: expect.stringContaining(`set the base URL to ${service.baseUrl}.`),
    });
    await expect(client.chat.completions.create({ ...completion, messages: [] })).rejects.toMatchObject({
      status: 404,
      code: "not_found",
    });
  });

  test.each([
    ["/v1/images/edits", "images/edits"],
    ["/v1/messages/batches", "messages/batches"],
    ["/v1/chat/completions/chatcmpl-1/messages", "chat/completions"],
    ["/v1/files/file-1", "files"],
  ])(
    "The endpoint %s, which is not supported, is named in a 404 with a link to those that are.",
    async (path, name) => {
      const answer = await send(service, path, token, completion);
      expect(answer.status).toBe(404);
      const { error } = (await answer.json()) as Failure;
      const expected = `The endpoint /v1/${name} is not supported. All supported endpoints: ${service.url}/docs`;
      expect(error).toMatchObject({ code: "not_found", message: expected });
      const page = await send(service, "/docs", null, undefined, { headers: { accept: "text/html" } });
      expect(page.status).toBe(200);
    },
  );

  test("Another path under /v1 gets a 404 that names the paths that exist.", async () => {
    const { error } = (await (await send(service, "/v1/imagesx/edits", token, completion)).json()) as Failure;
    expect(error.message).toMatch(
      /^Route not found\. Paths under \/v1: chat\/completions, completions, .*, usage, key\. All/,
    );
  });

  test("A path that repeats /v1 gets a 404 that says so.", async () => {
    const answer = await send(service, "/v1/v1/chat/completions", token, completion);
    expect(answer.status).toBe(404);
    const { error } = (await answer.json()) as Failure;
    expect(error.message).toBe(`Route not found. The path repeats /v1: set the base URL to ${service.baseUrl}.`);
  });

  test.each([
    ["a browser that says what it loads", { "sec-fetch-dest": "document", accept: "text/html,*/*;q=0.8" }],
    ["a browser over plain HTTP", { accept: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8" }],
  ])("%s gets the console's page at /models.", async (_name, headers) => {
    for (const path of ["/models", "/models/", "/models/sandbox/echo"]) {
      const answer = await send(service, path, null, undefined, { headers });
      expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
      expect(answer.headers.get("vary")).toContain("Accept");
    }
  });

  test.each([
    ["a script of a page", { "sec-fetch-dest": "empty", accept: "application/json" }],
    ["a script that accepts anything", { "sec-fetch-dest": "empty", accept: "text/html,*/*" }],
    ["curl", { accept: "*/*" }],
  ])("%s does not get the console's page at /models.", async (_name, headers) => {
    const answer = await send(service, "/models", token, undefined, { headers });
    expect(answer.status).toBe(404);
  });
});
