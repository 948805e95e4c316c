import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startService,
} from "../support/service.ts";
import { type ScriptedServer, startScriptedServer } from "../wires/scripted-server.ts";

/** Searches that Google runs, for the requests of every wire. */

const PLAIN_PRICE = { input: 1, output: 1 };
const TOKENS = 0.000052;

let makers: ScriptedServer;
let service: RunningService;
let rich: Organization;

beforeAll(async () => {
  makers = await startScriptedServer();
  const modelOf = (id: string, marks: object, price: object) => {
    return {
      id,
      price,
      contextWindow: 10_000,
      routes: [{ provider: "google", model: "gemini-3-flash-preview", ...marks }],
    };
  };
  service = await startService({
    config: {
      providers: [{ id: "google", kind: "google", baseUrl: `${makers.origin}/v1beta`, apiKey: "key" }],
      models: [
        modelOf("gemini", { runsTools: true, callsMost: 3 }, { ...PLAIN_PRICE, perSearch: 0.01 }),
        modelOf("gemini-plain", {}, PLAIN_PRICE),
      ],
    },
  });
  rich = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await makers?.end();
});
beforeEach(() => makers.reset());

const openai = () => new OpenAI({ baseURL: service.baseUrl, apiKey: rich.token, maxRetries: 0 });
const anthropic = () => new Anthropic({ apiKey: rich.token, authToken: null, baseURL: service.url, maxRetries: 0 });
const spent = async () => (await settledUsage(service, rich.token)).creditsUsed;

interface Grounded {
  candidates: { groundingMetadata: { groundingChunks: object[] } }[];
  usageMetadata: { cost: number };
}

describe("A search at Google", () => {
  const usageMetadata = { promptTokenCount: 40, candidatesTokenCount: 12, totalTokenCount: 52 };
  const grounded = (webSearchQueries: string[]) => ({
    webSearchQueries,
    groundingChunks: [{ web: { uri: "https://a.example", title: "A" } }],
  });
  const answered = (queries: string[], finishReason?: string) => {
    const content = { role: "model", parts: [{ text: "They did." }] };
    return { candidates: [{ content, finishReason, groundingMetadata: grounded(queries) }], usageMetadata };
  };
  const answer = (queries = ["who", "won"]) => makers.answer({ body: JSON.stringify(answered(queries, "STOP")) });
  const contents = [{ role: "user", parts: [{ text: "Who won?" }] }];
  const search = { googleSearch: {} };
  const generate = (model: string, body: object, { token } = rich, method = "generateContent") =>
    send(service, `/v1beta/models/${model}:${method}`, token, { contents, ...body });
  const messages = [{ role: "user" as const, content: "Who won?" }];
  const named = { name: "f", parameters: { type: "object", properties: {} } };

  test("passes from Gemini's wire, in snake case too, and is charged as reported, at most callsMost times.", async () => {
    for (const [tool, queries, cost] of [
      [search, ["who", "won"], 0.02],
      [{ google_search: {} }, ["a", "b", "c", "d", "e"], 0.03],
      [search, [], 0],
    ] as const) {
      makers.reset();
      answer([...queries]);
      const before = await spent();
      const heard = (await (await generate("gemini", { tools: [tool] })).json()) as Grounded;
      const { candidates, usageMetadata: used } = heard;
      expect(makers.requests[0]?.body.tools).toEqual([search]);
      expect(candidates[0]?.groundingMetadata.groundingChunks).toEqual(grounded([]).groundingChunks);
      expect(used.cost).toBeCloseTo(cost + TOKENS, 9);
      expect((await spent()) - before).toBeCloseTo(cost + TOKENS, 9);
    }
  });

  test("answers the searches of Claude, OpenAI's Responses and chat completions.", async () => {
    const before = await spent();
    answer();
    const tool = { type: "web_search_20250305" as const, name: "web_search" as const };
    const tool_choice = { type: "tool" as const, name: "web_search" };
    const asked = { model: "gemini", max_tokens: 100, messages, tools: [tool], tool_choice };
    const message = await anthropic().messages.create(asked);
    expect(message.content).toMatchObject([{ type: "text", text: "They did.", citations: [{ title: "A" }] }]);
    expect(message.usage).toMatchObject({ server_tool_use: { web_search_requests: 2 }, cost: 0.02 + TOKENS });
    answer();
    const response = await openai().responses.create({
      ...{ model: "gemini", input: "Who won?", tools: [{ type: "web_search" }] },
      tool_choice: { type: "web_search" } as never,
    });
    expect(response.output_text).toBe("They did.");
    expect(response.output).toMatchObject([{ content: [{ annotations: [{ url: "https://a.example" }] }] }]);
    answer();
    const web_search_options = { search_context_size: "low" as const };
    const { response: heard } = await openai()
      .chat.completions.create({ model: "gemini", messages, web_search_options })
      .withResponse();
    expect(heard.headers.get("x-tollgate-ignored")).toBe("web_search_options.search_context_size");
    expect(makers.requests.map(({ body }) => [body.tools, body.toolConfig])).toEqual(
      makers.requests.map(() => [[search], undefined]),
    );
    expect(makers.requests).toHaveLength(3);
    expect((await spent()) - before).toBeCloseTo(3 * (0.02 + TOKENS), 9);
  });

  test("names the settings that Google does not have, and is refused where they limit what it finds.", async () => {
    const claudes = (settings: object) => {
      const tool = { type: "web_search_20250305" as const, name: "web_search" as const, ...settings };
      return anthropic().messages.create({ model: "gemini", max_tokens: 100, messages, tools: [tool] });
    };
    const openais = (settings: object) => {
      const tools = [{ type: "web_search" as const, ...settings }];
      return openai().responses.create({ model: "gemini", input: "Who won?", tools, max_tool_calls: 2 });
    };
    answer();
    const { response: ofClaude } = await claudes({ max_uses: 1 }).withResponse();
    expect(ofClaude.headers.get("x-tollgate-ignored")).toBe("tools.max_uses");
    answer();
    const { response: ofOpenai } = await openais({ search_context_size: "low" }).withResponse();
    expect(ofOpenai.headers.get("x-tollgate-ignored")?.split(/, ?/)).toEqual([
      "tools.search_context_size",
      "max_tool_calls",
    ]);
    const asked = makers.requests.length;
    await expect(claudes({ blocked_domains: ["a.example"] })).rejects.toMatchObject({ status: 400 });
    await expect(openais({ filters: { allowed_domains: ["a.example"] } })).rejects.toMatchObject({
      ...{ status: 400, param: "tools[0].filters" },
    });
    expect(makers.requests).toHaveLength(asked);
  });

  test("is charged as far as the stream shows it where the client leaves before the report.", async () => {
    const before = await spent();
    const event = `data: ${JSON.stringify({ ...answered(["who", "won"]), usageMetadata: undefined })}\n\n`;
    makers.answer({ headers: { "content-type": "text/event-stream" }, body: event, ending: "hold" });
    const left = await generate("gemini", { tools: [search] }, rich, "streamGenerateContent?alt=sse");
    const reader = left.body?.getReader();
    await reader?.read();
    await reader?.cancel();
    await makers.closed();
    const charged = (await spent()) - before;
    expect(charged).toBeGreaterThan(0.02);
    expect(charged).toBeLessThan(0.021);
  });

  test("is held with all its searches and the context window, which a request without one does not need.", async () => {
    const poor = await makeOrganization(service, "0.039");
    expect((await generate("gemini", { tools: [search] }, poor)).status).toBe(402);
    expect(makers.requests).toEqual([]);
    const cheap = await makeOrganization(service, "0.002");
    answer([]);
    const generationConfig = { maxOutputTokens: 100 };
    expect((await generate("gemini", { generationConfig }, cheap)).status).toBe(200);
    expect(makers.requests[0]?.body).not.toHaveProperty("tools");
  });

  test("passes together with functions, because the model decides which to call.", async () => {
    answer();
    const tools = [search, { functionDeclarations: [named] }];
    expect((await generate("gemini", { tools })).status).toBe(200);
    expect(makers.requests[0]?.body.tools).toEqual(tools);
  });

  test("is refused by name together with functions of another wire, with settings, and where the route runs no tools.", async () => {
    const refusal = async (response: Response) => {
      const { error } = (await response.json()) as { error: { details: { metadata: object }[] } };
      return [response.status, error.details[0]?.metadata];
    };
    const inGemini = [400, expect.objectContaining({ param: "tools.googleSearch" })];
    expect(await refusal(await generate("gemini-plain", { tools: [search] }))).toEqual(inGemini);
    const beside = openai().chat.completions.create({
      ...{ model: "gemini", messages, web_search_options: {} },
      tools: [{ type: "function", function: named }],
    });
    await expect(beside).rejects.toMatchObject({ status: 400, param: "web_search_options" });
    const ranged = { tools: [{ googleSearch: { timeRangeFilter: {} } }] };
    const param = "tools.googleSearch.timeRangeFilter";
    expect(await refusal(await generate("gemini", ranged))).toEqual([400, expect.objectContaining({ param })]);
    const web = { type: "web_search" as const };
    const plain = openai().responses.create({ model: "gemini-plain", input: "Who won?", tools: [web] });
    await expect(plain).rejects.toMatchObject({ status: 400, param: "tools[0].type" });
    expect(makers.requests).toEqual([]);
    // Clients such as Codex offer a search with each request.
    answer([]);
    const tools = [web, { type: "function" as const, ...named, strict: false }];
    const offered = openai().responses.create({ model: "gemini", input: "Who won?", tools });
    const { response } = await offered.withResponse();
    expect(response.headers.get("x-tollgate-ignored")).toContain("tools.web_search");
    expect(makers.requests[0]?.body.tools).toMatchObject([{ functionDeclarations: [{ name: "f" }] }]);
  });
});
