import { writeFileSync } from "node:fs";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ModelList } from "../../src/api/model.ts";
import { firstToken, operator } from "../support/admin.ts";
import { makeOrganization, makeToken, type RunningService, send, startService } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
const messages = [{ role: "user" as const, content: "go" }];
let upstream: Upstream;

const modelOf = (id: string, output: number) => ({
  id,
  price: { input: 0, output },
  routes: [{ provider: "up", model: id }],
});
const configOf = (aliases: object) => ({
  providers: [upstream.provider],
  models: [modelOf("cheap", 1_000_000), { ...modelOf("dear", 5_000_000), limits: { requestsPerMinute: 2 } }],
  aliases,
});

beforeAll(async () => {
  upstream = await startUpstream();
  for (const id of ["cheap", "dear"]) upstream.behave(id, answering({ words: ["a ", "b"], usage }));
});
afterAll(() => upstream?.close());

describe("An alias", () => {
  let service: RunningService;
  let organization: { id: string; token: string };
  beforeAll(async () => {
    service = await startService({ config: configOf({ "claude-*": "cheap", quick: "cheap", best: "dear" }) });
    organization = await makeOrganization(service, "1000000");
  });
  afterAll(() => service?.end());

  const ask = (model: string, token = organization.token, fields: object = {}) =>
    send(service, "/v1/chat/completions", token, { model, messages, max_tokens: 10, ...fields });

  const lastRequest = async () => {
    const { body } = await operator(service).call<{ data: { id: string }[] }>("GET", "/requests?limit=1");
    return (await operator(service).call("GET", `/requests/${body.data[0]?.id}`)).body;
  };

  test("is answered, charged and listed in the request log as the model that it names, with both names.", async () => {
    const answer = await ask("claude-sonnet-9", organization.token, { metadata: { requested_model: "x", team: "a" } });
    expect(await answer.json()).toMatchObject({ model: "cheap", usage: { cost: 2 } });
    expect(upstream.requests.at(-1)?.body.model).toBe("cheap");
    const metadata = { requested_model: "claude-sonnet-9", team: "a" };
    expect(await lastRequest()).toMatchObject({ model: "cheap", metadata, charged: 2 });
    await expect.poll(service.output).toMatch(/"model":"claude-sonnet-9".*"usedModel":"cheap"/);
    expect(await (await ask("cheap")).json()).toMatchObject({ model: "cheap" });
    expect(await lastRequest()).toMatchObject({ metadata: null });
  });

  test("works on every wire, streamed and not, and for Anthropic's client.", async () => {
    const client = new Anthropic({ apiKey: organization.token, baseURL: service.url, maxRetries: 0 });
    const body = { model: "claude-sonnet-9", max_tokens: 10, messages };
    expect(await client.messages.create(body)).toMatchObject({ model: "cheap" });
    expect(await client.messages.stream(body).finalText()).toBe("a b");
    expect(await client.messages.countTokens({ model: "claude-sonnet-9", messages })).toHaveProperty("input_tokens");
    expect(await client.models.retrieve("claude-sonnet-9")).toMatchObject({ id: "claude-sonnet-9" });
    const response = await send(service, "/v1/responses", organization.token, { model: "quick", input: "go" });
    expect(await response.json()).toMatchObject({ model: "cheap", status: "completed" });
  });

  test("is listed if it is a whole name, with the facts and prices of its model.", async () => {
    const answer = await send(service, "/v1/models", organization.token);
    const { data } = (await answer.json()) as ModelList;
    const ids = data.map(({ id, alias_of }) => [id, alias_of]).filter(([id]) => !id?.startsWith("sandbox/"));
    expect(ids).toEqual([
      ["cheap", undefined],
      ["dear", undefined],
      ["quick", "cheap"],
      ["best", "dear"],
    ]);
    const own = data.find(({ id }) => id === "dear");
    expect(data.find(({ id }) => id === "best")).toEqual({ ...own, id: "best", alias_of: "dear" });
    const one = await send(service, "/v1/models/best", organization.token);
    expect(await one.json()).toMatchObject({ id: "best", alias_of: "dear" });
  });

  test("does not widen what a token may use.", async () => {
    const { token } = await makeToken(service, organization.id, { models: ["cheap"] });
    expect((await ask("quick", token)).status).toBe(200);
    const refused = await ask("best", token);
    expect(refused.status).toBe(403);
    const { error } = (await refused.json()) as { error: object };
    const message = "The access token may not use the model `best`.";
    expect(error).toMatchObject({ code: "model_not_allowed", message });
    const { data } = (await (await send(service, "/v1/models", token)).json()) as ModelList;
    expect(data.map(({ id }) => id)).toEqual(["cheap", "quick"]);
    expect((await send(service, "/v1/models/best", token)).status).toBe(404);
    const guest = await makeToken(service, "org_playground");
    expect((await ask("quick", guest.token)).status).toBe(403);
  });

  test("counts towards the limits of its model, and holds its price.", async () => {
    const { token } = await makeOrganization(service, "49");
    expect((await ask("best", token)).status).toBe(402);
    const rich = await makeOrganization(service, "1000");
    const statuses: number[] = [];
    for (const name of ["best", "dear", "best"]) statuses.push((await ask(name, rich.token)).status);
    expect(statuses).toContain(429);
  });

  test("and a repetition under one idempotency key with the same name return the first answer.", async () => {
    const headers = { "idempotency-key": "one" };
    const body = { model: "quick", messages, max_tokens: 10 };
    const post = (sent: object) => send(service, "/v1/chat/completions", organization.token, sent, { headers });
    const first = await (await post(body)).json();
    expect(await (await post(body)).json()).toEqual(first);
    expect((await post({ ...body, model: "cheap" })).status).toBe(422);
  });

  test("does not make an unknown model known.", async () => {
    for (const name of ["unknown", "quick-2", "claude"]) expect((await ask(name)).status).toBe(404);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });
});

test("Aliases change at a reload, and a wrong one leaves the service as it was.", async () => {
  const service = await startService({ config: configOf({ one: "cheap" }) });
  try {
    const { token } = await makeOrganization(service, "1000");
    const status = async (model: string) =>
      (await send(service, "/v1/chat/completions", token, { model, messages, max_tokens: 1 })).status;
    expect(await status("one")).toBe(200);
    const change = (aliases: object) =>
      writeFileSync(join(service.dataDir, "tollgate.yaml"), JSON.stringify(configOf(aliases)));
    change({ two: "dear" });
    await expect.poll(() => status("two"), { timeout: 60_000 }).toBe(200);
    expect(await status("one")).toBe(404);
    change({ two: "none" });
    const message = 'aliases.two: found \\"none\\", which is no model; allowed: cheap, dear';
    await expect.poll(service.output, { timeout: 60_000 }).toContain(message);
    expect(await status("two")).toBe(200);
  } finally {
    await service.end();
  }
});

test("A service without a configuration answers the model names of Claude Code and Gemini CLI.", async () => {
  const service = await startService();
  try {
    const client = new Anthropic({ authToken: firstToken(service), baseURL: service.url, maxRetries: 0 });
    const body = { model: "claude-sonnet-4-5", max_tokens: 32_000, messages };
    const answer = await client.messages.stream(body).finalMessage();
    expect(answer).toMatchObject({ model: "sandbox/echo", content: [{ text: "go" }] });
    const checked = await service.tollgate("config", "check");
    expect(checked).toMatchObject({ aliases: { "claude-*": "sandbox/echo", "gemini-*": "sandbox/echo" } });
    const contents = [{ role: "user", parts: [{ text: "come" }] }];
    const gemini = await send(service, "/v1beta/models/gemini-3-pro-preview:generateContent", firstToken(service), {
      contents,
    });
    expect(await gemini.json()).toMatchObject({ candidates: [{ content: { parts: [{ text: "come" }] } }] });
  } finally {
    await service.end();
  }
});
