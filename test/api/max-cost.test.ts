import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ChatCompletion } from "../../src/api/chat/completion.ts";
import { operator } from "../support/admin.ts";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

/** An output token costs a credit, the input almost nothing. */
const CHEAP = { input: 0.000001, output: 1_000_000 };
const DEAR = { input: 0.000001, output: 10_000_000 };
const PARTS = {
  ...{ input: 10, cachedInput: 1, cacheWrite: 12.5, cacheWrite1h: 20, inputAudio: 100, inputImage: 5 },
  ...{ output: 50, reasoning: 60, outputAudio: 200, perRequest: 0.005, perSearch: 0.01 },
  abovePromptTokens: { 1000: { input: 20, output: 75 }, 2000: { input: 40, output: 100 } },
  serviceTiers: { flex: { input: 5, output: 25 }, priority: { input: 20, output: 100 } },
};

let upstream: Upstream;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startUpstream();
  const route = (model: string, price?: object) => ({ provider: "up", model, ...(price && { price }) });
  const models = [
    { id: "mixed", routes: [route("dear", DEAR), route("cheap", CHEAP)] },
    { id: "breaking", routes: [route("broken", CHEAP), route("dear", DEAR)] },
    { id: "parts", routes: [{ ...route("parts", PARTS), callsMost: 2 }] },
    { id: "native", routes: [{ ...route("native", PARTS), provider: "claude", callsMost: 2 }] },
  ];
  const up = upstream.provider;
  const claude = { ...up, id: "claude", kind: "anthropic" };
  const limits = { maxOutputTokens: 4_000, contextWindow: 100_000 };
  service = await startService({
    config: { providers: [up, claude], models: models.map((one) => ({ ...one, ...limits })) },
  });
  ({ token } = await makeOrganization(service, "1000000"));
  report("dear", { prompt_tokens: 10, completion_tokens: 2 });
  report("cheap", { prompt_tokens: 10, completion_tokens: 2 });
  upstream.behave("broken", ({ response }) => sendJson(response, 500, { error: { message: "broken" } }));
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

/** Lets a model answer with a usage and further fields. */
function report(model: string, usage: object, more: object = {}): void {
  const choices = [{ index: 0, message: { role: "assistant", content: "a b" }, finish_reason: "stop" }];
  upstream.behave(model, ({ response }) => {
    sendJson(response, 200, { id: "c", object: "chat.completion", created: 1, model, choices, usage, ...more });
  });
}

function ask(model: string, maxCost: string | undefined, fields: object = {}): Promise<Response> {
  const messages = [{ role: "user", content: "go" }];
  const headers: Record<string, string> = maxCost === undefined ? {} : { "x-tollgate-max-cost": maxCost };
  return send(service, "/v1/chat/completions", token, { model, messages, ...fields }, { headers });
}
const routeOf = (answer: Response) => answer.headers.get("x-tollgate-route");

describe("x-tollgate-max-cost", () => {
  test("A route whose largest charge is above it is not taken.", async () => {
    const fields = { max_tokens: 100 };
    expect(routeOf(await ask("mixed", undefined, fields))).toBe("up/dear");
    expect(routeOf(await ask("mixed", "1001", fields))).toBe("up/dear");
    expect(routeOf(await ask("mixed", "999.999999", fields))).toBe("up/cheap");
  });

  test("A request that no route can answer for it is refused, with the least that is needed.", async () => {
    const before = upstream.requests.length;
    const answer = await ask("mixed", "99", { max_tokens: 100 });
    expect(answer.status).toBe(400);
    const { error } = (await answer.json()) as { error: Record<string, unknown> };
    expect(error).toMatchObject({ code: "max_cost_exceeded", param: "x-tollgate-max-cost" });
    expect(error.message).toContain(`at least ${error.credits_required} are needed`);
    expect(upstream.requests.length).toBe(before);
    const enough = await ask("mixed", String(error.credits_required), { max_tokens: 100 });
    expect([enough.status, routeOf(enough)]).toEqual([200, "up/cheap"]);
  });

  test("A request without max_tokens gets a shorter answer instead, and no more is held.", async () => {
    const before = upstream.requests.length;
    const answer = await ask("mixed", "300.5");
    expect([answer.status, routeOf(answer)]).toEqual([200, "up/cheap"]);
    expect(answer.headers.get("x-tollgate-max-tokens")).toBe("300");
    expect(upstream.requests[before]?.body.max_tokens).toBe(300);
  });

  test.each(["", "-1", "1 credit", "0.0000001", "Infinity", "1e99"])("%j is refused.", async (text) => {
    const answer = await ask("mixed", text);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { code: "invalid_value", param: "x-tollgate-max-cost" } });
  });
});

describe("a fallback to a dearer route billed without consent", () => {
  const fields = { max_tokens: 100 };
  const available = async () => {
    const answer = await send(service, "/v1/usage", token);
    return ((await answer.json()) as { creditsAvailable: number }).creditsAvailable;
  };
  /** Asks a model whose cheaper route fails; returns which routes were called, and the charge. */
  const fallBack = async (maxCost: string | undefined) => {
    const [sent, before] = [upstream.requests.length, await available()];
    const answer = await ask("breaking", maxCost, fields);
    const called = new Set(upstream.requests.slice(sent).map(({ body }) => body.model));
    return { status: answer.status, called: [...called], charged: before - (await available()) };
  };

  test("A dearer route is neither called nor charged if its largest charge is above the stated bound.", async () => {
    expect(await fallBack("200")).toEqual({ status: 502, called: ["broken"], charged: 0 });
    expect(await fallBack("999.999999")).toEqual({ status: 502, called: ["broken"], charged: 0 });
  });

  test("A dearer route answers, and is charged at its price, if the bound allows its largest charge.", async () => {
    const charged = expect.closeTo(20, 3);
    expect(await fallBack("1001")).toEqual({ status: 200, called: ["broken", "dear"], charged });
    expect(await fallBack(undefined)).toEqual({ status: 200, called: ["broken", "dear"], charged });
  });
});

describe("the classes of a charge", () => {
  const usageFor = async (usage: object, more: object = {}, fields: object = {}) => {
    report("parts", usage, more);
    const answer = await ask("parts", undefined, { max_tokens: 500, ...fields });
    const text = await answer.text();
    expect([answer.status, text]).toEqual([200, expect.any(String)]);
    return (JSON.parse(text) as ChatCompletion).usage;
  };
  const plain = { prompt_tokens: 20, completion_tokens: 10 };

  test("The request itself is charged, and each class at its own price.", async () => {
    const cost = (20 * 10 + 10 * 50) / 1e6 + 0.005;
    expect(await usageFor(plain)).toMatchObject({ ...plain, calls: { requests: 1 }, cost });
    const parts = { cached_tokens: 5, cache_write_tokens: 6, image_tokens: 2 };
    const usage = {
      ...plain,
      prompt_tokens_details: parts,
      completion_tokens_details: { reasoning_tokens: 4, audio_tokens: 3 },
    };
    expect(await usageFor(usage)).toMatchObject({
      ...usage,
      cost: Math.ceil(7 * 10 + 2 * 5 + 5 * 1 + 6 * 12.5 + 3 * 50 + 3 * 200 + 4 * 60 + 5_000) / 1e6,
    });
  });

  test("Cache writes of an hour and audio are charged at their prices where the request can have them.", async () => {
    const details = { cache_write_tokens: 6, cache_write_1h_tokens: 4, audio_tokens: 7 };
    const usage = { ...plain, prompt_tokens_details: details };
    const other = 10 * 50 + 5_000;
    expect(await usageFor(usage)).toMatchObject({ ...usage, cost: (14 * 10 + 6 * 12.5 + other) / 1e6 });
    const text = { type: "text", text: "go", cache_control: { type: "ephemeral", ttl: "1h" } };
    const messages = [{ role: "user", content: [text] }];
    const hour = (14 * 10 + 2 * 12.5 + 4 * 20 + other) / 1e6;
    expect(await usageFor(usage, {}, { messages })).toMatchObject({ ...usage, cost: hour });
  });

  test("Searches are charged as reported, at most as many as the route states.", async () => {
    const cost = (20 * 10 + 10 * 50) / 1e6 + 0.005;
    expect(await usageFor({ ...plain, num_search_queries: 1 })).toMatchObject({
      calls: { searches: 1 },
      cost: cost + 0.01,
    });
    const many = await usageFor({ ...plain, num_search_queries: 9 });
    expect(many).toMatchObject({ calls: { requests: 1, searches: 2 } });
    expect(many.cost).toBeCloseTo(cost + 0.02, 9);
  });

  test.each([
    ["flex", (20 * 5 + 10 * 25) / 1e6 + 0.005],
    ["priority", (20 * 20 + 10 * 100) / 1e6 + 0.005],
    ["default", (20 * 10 + 10 * 50) / 1e6 + 0.005],
    ["constructor", (20 * 10 + 10 * 50) / 1e6 + 0.005],
  ])(
    "An answer of the service tier %s is charged at its price, and the fee that it does not state.",
    async (service_tier, cost) => {
      expect(await usageFor(plain, { service_tier })).toMatchObject({ cost });
    },
  );

  test("A longer prompt is charged at the price of its length, and the fee that it does not state.", async () => {
    const messages = [{ role: "user", content: "word ".repeat(2_000) }];
    const prices = { 1000: [10, 50], 1001: [20, 75], 2000: [20, 75], 2001: [40, 100] };
    for (const [prompt, [input = 0, output = 0]] of Object.entries(prices)) {
      const usage = { prompt_tokens: Number(prompt), completion_tokens: 10 };
      const cost = (Number(prompt) * input + 10 * output + 5_000) / 1e6;
      expect(await usageFor(usage, {}, { messages })).toMatchObject({ ...usage, cost });
    }
  });

  test.each([
    ["flex", "word", { service_tier: "flex", above_prompt_tokens: null, max_prompt_tokens: 1000 }],
    ["priority", "long", { service_tier: "priority", above_prompt_tokens: 1000, max_prompt_tokens: 2000 }],
    ["default", "longer", { service_tier: null, above_prompt_tokens: 2000, max_prompt_tokens: null }],
  ])(
    "The tier whose prices were charged is stored and shown: %s with a %s prompt.",
    async (service_tier, length, tier) => {
      const prompt_tokens = { word: 1, long: 1_500, longer: 2_500 }[length];
      report("parts", { prompt_tokens, completion_tokens: 1 }, { service_tier });
      const messages = [{ role: "user", content: "word ".repeat(1_000) }];
      const answer = await ask("parts", undefined, { max_tokens: 5, messages });
      await answer.text();
      const filter = `request_id=${answer.headers.get("x-request-id")}`;
      const { data } = (await operator(service).call<{ data: { id: string }[] }>("GET", `/requests?${filter}`)).body;
      const shown = await operator(service).call("GET", `/requests/${data[0]?.id}`);
      expect(shown.body).toMatchObject({ price_tier: { from: null, ...tier }, prices: { requests: 0.005 } });
    },
  );

  test.each([
    ["standard", (10 * 10 + 4 * 1 + 2 * 12.5 + 4 * 20 + 10 * 50) / 1e6 + 0.005 + 0.01],
    ["priority", (10 * 20 + 4 * 1 + 2 * 12.5 + 4 * 20 + 10 * 100) / 1e6 + 0.005 + 0.01],
  ])("An answer of the Messages wire is charged by its own report: %s.", async (service_tier, cost) => {
    const kept = { ephemeral_5m_input_tokens: 2, ephemeral_1h_input_tokens: 4 };
    const counted = { input_tokens: 10, cache_creation_input_tokens: 6, cache_read_input_tokens: 4, output_tokens: 10 };
    const usage = { ...counted, cache_creation: kept, server_tool_use: { web_search_requests: 1 }, service_tier };
    const content = [{ type: "text", text: "a b" }];
    upstream.behave("native", ({ response, body: { model } }) => {
      const ending = { stop_reason: "end_turn", stop_sequence: null };
      sendJson(response, 200, { id: "msg_1", type: "message", role: "assistant", model, content, ...ending, usage });
    });
    // The internal form of a tool call has no cache mark.
    const call = {
      type: "tool_use",
      id: "a",
      name: "look",
      input: {},
      cache_control: { type: "ephemeral", ttl: "1h" },
    };
    const messages = [
      { role: "user", content: "go" },
      { role: "assistant", content: [call] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: "seen" }] },
    ];
    const tools = [{ name: "look", input_schema: { type: "object" } }];
    const body = { model: "native", max_tokens: 500, messages, tools };
    const answer = await send(service, "/v1/messages", token, body);
    expect(await answer.json()).toMatchObject({ content, usage: { ...counted, cache_creation: kept, cost } });
  });

  test("Every wire has the bound of the cost.", async () => {
    const headers = { "x-tollgate-max-cost": "0.000001" };
    const message = { model: "native", max_tokens: 500, messages: [{ role: "user", content: "go" }] };
    const refused = { status: 400, text: expect.stringContaining("x-tollgate-max-cost") };
    for (const [path, body] of [
      ["/v1/messages", message],
      ["/v1/responses", { model: "parts", input: "go" }],
    ] as const) {
      const answer = await send(service, path, token, body, { headers });
      expect({ status: answer.status, text: await answer.text() }).toEqual(refused);
    }
  });

  test("Afterwards the ledger balances.", async () => {
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });
});
