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

const modelEntry = (id: string, output: number) => ({
  id,
  price: { input: 0, output },
  routes: [{ provider: "up", model: id }],
});
const configOf = (aliases: object) => ({
  providers: [upstream.provider],
  models: [modelEntry("cheap", 1_000_000), { ...modelEntry("dear", 5_000_000), limits: { requestsPerMinute: 2 } }],
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

describe("An alias of an organization", () => {
  const SERVICE_ALIASES = { quick: "cheap", "claude-*": "cheap" };
  let service: RunningService;
  let own: { id: string; token: string };
  let other: { id: string; token: string };
  beforeAll(async () => {
    const models = [modelEntry("cheap", 1_000_000), modelEntry("dear", 5_000_000)];
    service = await startService({ config: { ...configOf(SERVICE_ALIASES), models } });
    [own, other] = [await makeOrganization(service, "1000000"), await makeOrganization(service, "1000000")];
    expect((await change({ aliases: { house: "dear", quick: "dear", plain: "cheap" } })).status).toBe(200);
  });
  afterAll(() => service?.end());

  const change = (body: object) => operator(service).call("PATCH", `/organizations/${own.id}`, body);
  const ask = (model: string, token = own.token) =>
    send(service, "/v1/responses", token, { model, input: "go", max_output_tokens: 10 });
  const modelOf = async (name: string, token?: string) =>
    ((await (await ask(name, token)).json()) as { model?: string }).model;
  const listed = async (token: string) => {
    const { data } = (await (await send(service, "/v1/models", token)).json()) as ModelList;
    return Object.fromEntries(data.flatMap(({ id, alias_of }) => (alias_of === undefined ? [] : [[id, alias_of]])));
  };

  test("is used and listed for its tokens only, in front of those of the service.", async () => {
    const { token } = await makeToken(service, own.id, { models: ["cheap"] });
    await Promise.all([expect.poll(() => modelOf("quick"), { timeout: 60_000 }).toBe("dear"), modelOf("plain")]);
    expect([await modelOf("plain"), await modelOf("house")]).toEqual(["cheap", "dear"]);
    expect(await modelOf("claude-sonnet-9")).toBe("cheap");
    expect(await listed(own.token)).toEqual({ quick: "dear", house: "dear", plain: "cheap" });
    expect(await listed(token)).toEqual({ plain: "cheap" });
    expect(await (await send(service, "/v1/models/house", own.token)).json()).toMatchObject({ alias_of: "dear" });
    expect((await ask("house", token)).status).toBe(403);
    expect(await modelOf("quick", other.token)).toBe("cheap");
    expect(await listed(other.token)).toEqual({ quick: "cheap" });
    expect((await ask("house", other.token)).status).toBe(404);
    expect((await send(service, "/v1/models/house", other.token)).status).toBe(404);
    const { body } = await operator(service).call<{ data: object[] }>(
      "GET",
      `/requests?organization_id=${own.id}&model=dear`,
    );
    expect(body.data).toContainEqual(expect.objectContaining({ metadata: { requested_model: "house" } }));
  });

  test("names a model that exists and that its organization may use, and hides none.", async () => {
    const refusals: [aliases: object, rest: object, param: string, message: RegExp][] = [
      [{ a: "none" }, {}, "aliases.a", /"none", but must be the id of a model/],
      [{ a: "quick" }, {}, "aliases.a", /"quick", but must be the id of a model/],
      [{ cheap: "dear" }, {}, "aliases", /"cheap", but must be names .* which no model has/],
      [{ a: "dear" }, { models: ["cheap"] }, "aliases.a", /"dear", but must be one of the models of the organization/],
      [{ "a*": "dear" }, {}, "aliases", /names/],
      [{}, {}, "aliases", /./],
    ];
    for (const [aliases, rest, param, message] of refusals) {
      const { status, body } = await change({ aliases, ...rest });
      expect({ status, body }, JSON.stringify(aliases)).toMatchObject({ status: 400, body: { error: { param } } });
      expect((body as { error: { message: string } }).error.message).toMatch(message);
    }
    await operator(service).call("PATCH", `/organizations/${other.id}`, { models: ["cheap"] });
    const stored = await operator(service).call("PATCH", `/organizations/${other.id}`, { aliases: { a: "dear" } });
    expect(stored).toMatchObject({ status: 400, body: { error: { param: "aliases.a" } } });
  });

  test("is unknown like any other name once its model is gone, and gives way to a model of its name.", async () => {
    const write = (models: object[]) =>
      writeFileSync(
        join(service.dataDir, "tollgate.yaml"),
        JSON.stringify({ providers: [upstream.provider], models, aliases: { quick: "cheap" } }),
      );
    write([
      modelEntry("cheap", 1_000_000),
      { ...modelEntry("house", 1), routes: [{ provider: "up", model: "cheap" }] },
    ]);
    await expect.poll(() => modelOf("house"), { timeout: 60_000 }).toBe("house");
    const gone = await ask("quick");
    expect(gone.status).toBe(404);
    const error = {
      code: "model_not_found",
      message: "The model `quick` does not exist or you do not have access to it.",
    };
    expect(await gone.json()).toMatchObject({ error });
    expect(await listed(own.token)).toEqual({ plain: "cheap" });
  });

  test("is set and removed by the command.", async () => {
    const update = (...flags: string[]) => service.tollgate("org", "update", own.id, ...flags);
    expect(await update("--alias", "one=cheap", "two=cheap")).toMatchObject({
      aliases: { one: "cheap", two: "cheap" },
    });
    await expect.poll(() => modelOf("two"), { timeout: 60_000 }).toBe("cheap");
    expect(await update("--no-aliases")).toMatchObject({ aliases: null });
  });
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
