import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type JsonEvent, sse } from "../support/second-wire.ts";
import {
  makeOrganization,
  type Organization,
  type RunningService,
  settledUsage,
  startService,
} from "../support/service.ts";
import { type ScriptedServer, startScriptedServer } from "../wires/scripted-server.ts";

/** Searches that the provider runs: on routes that `runsTools` marks, up to `callsMost`, with a price for each. */

const PRICE = { input: 1, output: 1, perSearch: 0.01 };
/** Without a price of searches, a hold is for the prompt and the answer alone. */
const PLAIN_PRICE = { input: 1, output: 1 };
const TOKENS = 0.000052;

let makers: ScriptedServer;
let service: RunningService;
let rich: Organization;

beforeAll(async () => {
  makers = await startScriptedServer();
  const maker = (id: string, kind: string, host: string) => ({ id, kind, baseUrl: `http://${host}/v1`, apiKey: "key" });
  const modelOf = (id: string, provider: string, marks: object, price: object = PRICE) => {
    return { id, price, contextWindow: 10_000, routes: [{ provider, model: "m-1", ...marks }] };
  };
  const searching = { runsTools: true, callsMost: 3 };
  service = await startService({
    environment: { HTTP_PROXY: makers.origin, NO_PROXY: "127.0.0.1" },
    config: {
      providers: [
        maker("openai", "openai-compatible", "api.openai.com"),
        maker("anthropic", "anthropic", "api.anthropic.com"),
      ],
      models: [
        modelOf("gpt", "openai", searching),
        modelOf("gpt-plain", "openai", {}, PLAIN_PRICE),
        modelOf("claude", "anthropic", searching),
        modelOf("claude-plain", "anthropic", {}, PLAIN_PRICE),
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

const openai = ({ token } = rich) => new OpenAI({ baseURL: service.baseUrl, apiKey: token, maxRetries: 0 });
const anthropic = ({ token } = rich) =>
  new Anthropic({ apiKey: token, authToken: null, baseURL: service.url, maxRetries: 0 });
const spent = async ({ token } = rich) => (await settledUsage(service, token)).creditsUsed;

describe("A search on /v1/messages", () => {
  const tool = { type: "web_search_20250305" as const, name: "web_search" as const };
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Who won?" }];
  const asked = { model: "claude", max_tokens: 100, messages, tools: [{ ...tool, max_uses: 8 }] };
  const found = { type: "web_search_result", url: "https://a.example", title: "A", encrypted_content: "Eo8=" };
  const content = [
    { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "who won" } },
    { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [found] },
    {
      type: "text",
      text: "They did.",
      citations: [
        {
          type: "web_search_result_location",
          url: "https://a.example",
          encrypted_index: "Eo8=",
          title: "A",
          cited_text: "x",
        },
      ],
    },
  ];
  const usage = { input_tokens: 40, output_tokens: 12, server_tool_use: { web_search_requests: 2 } };

  test("passes with at most callsMost uses, is charged as reported, and its blocks go back in the next turn.", async () => {
    const before = await spent();
    const answer = { body: JSON.stringify({ id: "m", type: "message", content, stop_reason: "end_turn", usage }) };
    makers.answer(answer, answer);
    const message = await anthropic().messages.create(asked);
    expect(message.content).toEqual(content);
    expect(message.usage).toMatchObject({ server_tool_use: { web_search_requests: 2 }, cost: 0.02 + TOKENS });
    expect(makers.requests[0]?.body.tools).toEqual([{ ...tool, max_uses: 3 }]);
    expect((await spent()) - before).toBeCloseTo(0.02 + TOKENS, 9);
    const next: Anthropic.MessageParam[] = [
      ...messages,
      { role: "assistant", content: message.content as never },
      ...messages,
    ];
    await anthropic().messages.create({ ...asked, messages: next });
    expect(makers.requests[1]?.body.messages).toEqual(next);
  });

  test("costs as much as the stream shows where the client leaves before the report.", async () => {
    const before = await spent();
    const events: JsonEvent[] = [
      { type: "message_start", message: { id: "m", usage: { input_tokens: 40, output_tokens: 1 } } },
      { type: "content_block_start", index: 0, content_block: { ...content[0], input: {} } },
      {
        type: "content_block_delta",
        index: 0,
        delta: { type: "input_json_delta", partial_json: '{"query":"who won"}' },
      },
      { type: "content_block_stop", index: 0 },
      { type: "content_block_start", index: 1, content_block: content[1] },
    ];
    makers.answer({ headers: { "content-type": "text/event-stream" }, body: sse(events), ending: "hold" });
    const stream = await anthropic().messages.create({ ...asked, stream: true });
    for await (const event of stream) if (event.type === "content_block_start" && event.index === 1) break;
    await makers.closed();
    const charged = (await spent()) - before;
    expect(charged).toBeGreaterThan(0.01 + 0.00004);
    expect(charged).toBeLessThan(0.011);
  });

  test("needs credits for all searches and for a prompt as long as the context window.", async () => {
    const poor = await makeOrganization(service, "0.039");
    await expect(anthropic(poor).messages.create(asked)).rejects.toMatchObject({ status: 402 });
    expect(makers.requests).toEqual([]);
    makers.answer({ body: JSON.stringify({ id: "m", type: "message", content: [], stop_reason: "end_turn", usage }) });
    const cheap = await makeOrganization(service, "0.002");
    await anthropic(cheap).messages.create({ ...asked, tools: [] });
  });

  test("of an earlier turn counts as prompt with its query and its results, and charges a whole answer without a report.", async () => {
    const query = { ...content[0], input: { query: "q".repeat(5_000) } };
    const poor = await makeOrganization(service, "0.004");
    const earlier = { model: "claude-plain", max_tokens: 100, messages: [{ role: "assistant", content: [query] }] };
    await expect(anthropic(poor).messages.create(earlier as never)).rejects.toMatchObject({ status: 402 });
    expect(makers.requests).toEqual([]);
    const before = await spent();
    makers.answer({ body: JSON.stringify({ id: "m", type: "message", content, stop_reason: "end_turn" }) });
    await anthropic().messages.create(asked);
    expect((await spent()) - before).toBeGreaterThan(0.01);
  });

  test("is refused together with another one, because the hold covers callsMost of both together.", async () => {
    const tools = [tool, { ...tool, type: "web_search_20260209" }];
    const refused = anthropic().messages.create({ ...asked, tools: tools as never });
    const details = { error_code: "invalid_value", param: "tools[1].type" };
    await expect(refused).rejects.toMatchObject({ status: 400, error: { error: { details } } });
    expect(makers.requests).toEqual([]);
  });

  test("is refused by name where the route runs no tools, and elsewhere.", async () => {
    const refused = anthropic().messages.create({ ...asked, model: "claude-plain" });
    const details = { error_code: "unsupported_value", param: "tools[0].type" };
    await expect(refused).rejects.toMatchObject({ status: 400, error: { error: { details } } });
    const other = anthropic().messages.create({ ...asked, model: "sandbox/echo" });
    await expect(other).rejects.toMatchObject({ status: 400, error: { error: { details } } });
    expect(makers.requests).toEqual([]);
  });
});

describe("A search on /v1/responses", () => {
  const search = { type: "web_search" as const, search_context_size: "low" as const };
  const call = (id: string, type: string) => ({ id, type: "web_search_call", status: "completed", action: { type } });
  const text = { id: "msg_1", type: "message", role: "assistant", status: "completed", content: [] };
  const output = [call("ws_1", "search"), call("ws_2", "open_page"), call("ws_3", "search"), text];
  const usage = { input_tokens: 40, output_tokens: 12 };
  const response = { id: "r", status: "completed", output, usage };

  test.each([
    [{}, 3],
    [{ max_tool_calls: 2 }, 2],
    [{ max_tool_calls: 9, tool_choice: { type: "web_search" } as never }, 3],
  ])("passes with a bound of its calls, and each search is charged: %j.", async (fields, max_tool_calls) => {
    const before = await spent();
    const events: JsonEvent[] = [
      ...output.flatMap((item, output_index) =>
        ["added", "done"].map((end) => ({ type: `response.output_item.${end}`, output_index, item })),
      ),
      { type: "response.completed", response },
    ];
    makers.answer({ body: JSON.stringify(response) });
    makers.answer({ headers: { "content-type": "text/event-stream" }, body: sse(events) });
    const asked = { model: "gpt", input: "Who won?", tools: [search], ...fields };
    expect((await openai().responses.create(asked)).output).toEqual(output);
    expect((await openai().responses.stream(asked).finalResponse()).output).toMatchObject(output);
    expect(makers.requests).toHaveLength(2);
    for (const { body } of makers.requests) expect(body).toMatchObject({ tools: [search], max_tool_calls });
    expect((await spent()) - before).toBeCloseTo(2 * (0.02 + TOKENS), 9);
  });

  test("is charged as often as the stream shows where the client leaves before the report.", async () => {
    const before = await spent();
    const events = output
      .slice(0, 3)
      .map((item, output_index) => ({ type: "response.output_item.done", output_index, item }));
    makers.answer({ headers: { "content-type": "text/event-stream" }, body: sse(events), ending: "hold" });
    const stream = await openai().responses.create({ model: "gpt", input: "Who won?", tools: [search], stream: true });
    for await (const event of stream) if (event.type === "response.output_item.done" && event.output_index === 2) break;
    await makers.closed();
    const charged = (await spent()) - before;
    expect(charged).toBeGreaterThan(0.02);
    expect(charged).toBeLessThan(0.021);
  });

  test("is left out and named if there are other tools, on a route that runs no tools, and refused alone.", async () => {
    makers.answer({ body: JSON.stringify({ ...response, output: [text] }) });
    const named = { type: "function" as const, name: "f", parameters: {}, strict: false };
    const asked = { model: "gpt-plain", input: "Who won?", tools: [search, named] };
    const { response: heard } = await openai().responses.create(asked).withResponse();
    expect(heard.headers.get("x-tollgate-ignored")).toBe("tools.web_search");
    expect(makers.requests[0]?.body).toMatchObject({ tools: [named] });
    expect(makers.requests[0]?.body).not.toHaveProperty("max_tool_calls");
    const refused = openai().responses.create({ ...asked, tools: [search] });
    await expect(refused).rejects.toMatchObject({ status: 400, code: "unsupported_value", param: "tools[0].type" });
    const demanded = openai().responses.create({ ...asked, tool_choice: { type: "web_search" } as never });
    await expect(demanded).rejects.toMatchObject({ status: 400, code: "unsupported_value", param: "tools[0].type" });
    expect(makers.requests).toHaveLength(1);
  });

  test("of an earlier turn counts as prompt, and charges a whole answer without a report.", async () => {
    const query = { type: "web_search_call", id: "ws_1", action: { type: "search", query: "q".repeat(5_000) } };
    const poor = await makeOrganization(service, "0.004");
    const earlier = { model: "gpt-plain", max_output_tokens: 100, input: [query, { role: "user", content: "And?" }] };
    await expect(openai(poor).responses.create(earlier as never)).rejects.toMatchObject({ status: 402 });
    expect(makers.requests).toEqual([]);
    const before = await spent();
    makers.answer({ body: JSON.stringify({ ...response, usage: undefined }) });
    await openai().responses.create({ model: "gpt", input: "Who won?", tools: [search] });
    expect((await spent()) - before).toBeGreaterThan(0.02);
  });

  test("goes back with its answer.", async () => {
    makers.answer({ body: JSON.stringify(response) }, { body: JSON.stringify(response) });
    const first = await openai().responses.create({ model: "gpt", input: "Who won?", tools: [search] });
    const next = { model: "gpt", input: "And then?", tools: [search], previous_response_id: first.id };
    await openai().responses.create(next);
    const sent = makers.requests[1]?.body.input as object[];
    expect(sent).toHaveLength(6);
    expect(sent.slice(1, 4)).toEqual(output.slice(0, 3));
  });
});

describe("A hold covers, as a part of the prompt,", () => {
  const long = "q".repeat(5_000);
  const said = (part: object) => [
    { role: "user", content: "Go" },
    { role: "assistant", content: [part] },
  ];

  test.each<[string, object]>([
    ["the citations of a text", { messages: said({ type: "text", text: "x", citations: [{ cited_text: long }] }) }],
    [
      "the toolset of a call",
      { messages: said({ type: "tool_use", id: "c", name: "f", input: {}, toolset_name: long }) },
    ],
    [
      "what a request states for a tool of Anthropic's",
      {
        messages: [{ role: "user", content: "Go" }],
        tools: [{ type: "bash_20250124", name: "bash", description: long }],
      },
    ],
  ])("%s on /v1/messages.", async (_name, fields) => {
    const poor = await makeOrganization(service, "0.004");
    const asked = { model: "claude-plain", max_tokens: 100, ...fields };
    await expect(anthropic(poor).messages.create(asked as never)).rejects.toMatchObject({ status: 402 });
    expect(makers.requests).toEqual([]);
  });

  test("the annotations of a text on /v1/responses.", async () => {
    const poor = await makeOrganization(service, "0.004");
    const input = said({ type: "output_text", text: "x", annotations: [{ type: "url_citation", url: long }] });
    const asked = { model: "gpt-plain", max_output_tokens: 100, input };
    await expect(openai(poor).responses.create(asked as never)).rejects.toMatchObject({ status: 402 });
    expect(makers.requests).toEqual([]);
  });
});
