import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  makeOrganization,
  type Organization,
  type RunningService,
  settledUsage,
  startService,
} from "../support/service.ts";
import { type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";
import { type ScriptedServer, startScriptedServer } from "../wires/scripted-server.ts";
import { callOf, scripted } from "./scripted-answers.ts";

/** Tools for a screen of OpenAI and Anthropic, on providers that have no such tools: functions, and results with images. */

const PRICE = { input: 1, cachedInput: 1, output: 1 };
/** Usage of `scripted`, and of the makers' answers here: 40 and 12 tokens. */
const COST = 0.000052;
const DATA = "iVBORw0KGgo=";
const PNG = `data:image/png;base64,${DATA}`;
const IMAGE = { type: "image_url", image_url: { url: PNG } };

const CLICK = { type: "click", x: 10, y: 20, button: "left" };
const ACTIONS = [
  CLICK,
  { type: "scroll", x: 1, y: 2, scroll_x: 0, scroll_y: 300 },
  {
    type: "drag",
    path: [
      { x: 1, y: 2 },
      { x: 3, y: 4 },
    ],
    keys: ["SHIFT"],
  },
  { type: "keypress", keys: ["CTRL", "S"] },
  { type: "type", text: "Hello" },
  { type: "wait" },
];
const CALLS: Record<string, [name: string, given: object]> = {
  screen: ["computer", { actions: [CLICK] }],
  busy: ["computer", { actions: ACTIONS }],
  terse: ["computer", { actions: [{ type: "click", x: 1, y: 2 }, { type: "fly" }, { type: "wait" }] }],
  idle: ["computer", {}],
  preview: ["computer_use_preview", { type: "double_click", x: 3, y: 4, text: "unused" }],
  claude: ["computer", { action: "left_click", coordinate: [10, 20] }],
};

let upstream: Upstream;
let makers: ScriptedServer;
let service: RunningService;
let rich: Organization;

/** Calls a tool until its result arrives, and then answers with text. */
const calling = ([name, given]: [string, object]): Behaviour => {
  return (request) => {
    const messages = request.body.messages as { role: string }[];
    const hasResult = messages.some(({ role }) => role === "tool");
    const call = scripted([callOf(name, JSON.stringify(given))], "tool_calls");
    return (hasResult ? scripted([{ content: "Done." }]) : call)(request);
  };
};

beforeAll(async () => {
  upstream = await startUpstream();
  makers = await startScriptedServer();
  for (const [model, call] of Object.entries(CALLS)) upstream.behave(model, calling(call));
  const route = (provider: string, model: string) => ({ provider, model });
  const sees = { capabilities: ["chat", "streaming", "tools", "vision"] };
  service = await startService({
    config: {
      providers: [
        { id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl, apiKey: "key" },
        { id: "anthropic", kind: "anthropic", baseUrl: `${makers.origin}/v1`, apiKey: "key" },
        { id: "google", kind: "google", baseUrl: `${makers.origin}/v1beta`, apiKey: "key" },
      ],
      models: [
        ...Object.keys(CALLS).map((id) => ({ id, price: PRICE, ...sees, routes: [route("up", id)] })),
        { id: "blind", price: PRICE, capabilities: ["chat", "tools"], routes: [route("up", "screen")] },
        { id: "at-anthropic", price: PRICE, routes: [route("anthropic", "claude-opus-5")] },
        { id: "at-google", price: PRICE, routes: [route("google", "gemini-3-flash-preview")] },
      ],
    },
  });
  rich = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
  await makers?.end();
});
beforeEach(() => makers.reset());

const openai = () => new OpenAI({ baseURL: service.baseUrl, apiKey: rich.token, maxRetries: 0 });
const anthropic = () => new Anthropic({ apiKey: rich.token, authToken: null, baseURL: service.url, maxRetries: 0 });
const spent = async () => (await settledUsage(service, rich.token)).creditsUsed;
const bodyOf = () => upstream.requests.at(-1)?.body as unknown as { messages: object[]; tools: object[] };

type ResponseInput = OpenAI.Responses.ResponseInput;
const COMPUTER = { type: "computer" } as const;
const PREVIEW = {
  ...({ type: "computer_use_preview", environment: "browser" } as const),
  ...{ display_width: 1024, display_height: 768 },
};
const USER = { role: "user" as const, content: "Go" };
const call = (id: string, fields: object) => {
  return { id: "cu_1", type: "computer_call", call_id: id, status: "completed", pending_safety_checks: [], ...fields };
};
const screenshot = (id: string) => {
  return { type: "computer_call_output", call_id: id, output: { type: "computer_screenshot", image_url: PNG } };
};

describe("OpenAI's tools for a screen on another provider", () => {
  test.each([
    ["screen", COMPUTER, { actions: [CLICK] }, { actions: [CLICK] }],
    ["preview", PREVIEW, { action: { type: "double_click", x: 3, y: 4 } }, { type: "double_click", x: 3, y: 4 }],
  ])(
    "%s is a function, its call comes back in its own form, and the model sees the screenshot.",
    async (model, tool, fields, given) => {
      const before = await spent();
      const asked = { model, input: "Go", tools: [tool] as OpenAI.Responses.Tool[] };
      const whole = await openai().responses.create(asked);
      const name = tool.type;
      const item = call(`call_${name}`, { id: expect.stringMatching("^cu_"), ...fields });
      expect(whole.output).toEqual([item]);
      expect(bodyOf().tools).toMatchObject([{ type: "function", function: { name, parameters: { type: "object" } } }]);
      expect((await openai().responses.stream(asked).finalResponse()).output).toEqual([item]);

      const input = [USER, ...whole.output, screenshot(`call_${name}`)] as ResponseInput;
      const last = await openai().responses.create({ ...asked, input });
      expect(last.output_text).toBe("Done.");
      const [, called, result, seen] = bodyOf().messages as { tool_calls: { function: { arguments: string } }[] }[];
      expect(called).toMatchObject({ role: "assistant", tool_calls: [{ id: `call_${name}`, function: { name } }] });
      expect(JSON.parse(called?.tool_calls[0]?.function.arguments ?? "")).toEqual(given);
      expect(result).toEqual({ role: "tool", tool_call_id: `call_${name}`, content: "In the next message." });
      expect(seen).toEqual({ role: "user", content: [IMAGE] });
      const further = {
        ...asked,
        input: [screenshot(`call_${name}`)] as ResponseInput,
        previous_response_id: whole.id,
      };
      expect((await openai().responses.create(further)).output_text).toBe("Done.");
      expect((await spent()) - before).toBeCloseTo(4 * COST, 9);
    },
  );

  test("The size of the preview's screen is part of the function's description.", async () => {
    await openai().responses.create({ model: "preview", input: "Go", tools: [PREVIEW] });
    expect(bodyOf().tools).toMatchObject([{ function: { description: expect.stringContaining("1024 × 768") } }]);
  });

  test.each([
    ["busy", ACTIONS],
    ["terse", [{ type: "click", x: 1, y: 2, button: "left" }, { type: "screenshot" }]],
    ["idle", [{ type: "screenshot" }]],
  ])(
    "Actions come back as they are, and those from the first in another form on as a screenshot: %s.",
    async (model, actions) => {
      const { output } = await openai().responses.create({ model, input: "Go", tools: [COMPUTER] });
      expect(output).toMatchObject([{ type: "computer_call", actions }]);
    },
  );

  test("A tool for a screen can be chosen.", async () => {
    const tools = [COMPUTER, { type: "shell" as const }];
    const tool_choice = { type: "computer" } as const;
    await openai().responses.create({ model: "screen", input: "Go", tools, tool_choice });
    expect(bodyOf()).toMatchObject({ tool_choice: { type: "function", function: { name: "computer" } } });
  });

  test("Screenshots of calls in a row reach the model after all their results.", async () => {
    const calls = ["a", "b"].map((id) => call(id, { actions: [{ type: "wait" }] }));
    const input = [USER, ...calls, screenshot("a"), screenshot("b"), USER] as ResponseInput;
    await openai().responses.create({ model: "screen", input, tools: [COMPUTER] });
    expect(bodyOf().messages).toMatchObject([
      { role: "user" },
      { role: "assistant", tool_calls: [{ id: "a" }, { id: "b" }] },
      { role: "tool", tool_call_id: "a" },
      { role: "tool", tool_call_id: "b" },
      { role: "user", content: [IMAGE, IMAGE] },
      { role: "user", content: "Go" },
    ]);
  });

  test("A model without vision refuses the screenshot by name.", async () => {
    const input = [USER, call("a", { actions: [{ type: "wait" }] }), screenshot("a")] as ResponseInput;
    const asked = openai().responses.create({ model: "blind", input, tools: [COMPUTER] });
    await expect(asked).rejects.toMatchObject({ status: 400, code: "unsupported_value", param: "input[2].output" });
  });

  test("Anthropic gets the screenshot in the result, and Google in the next message.", async () => {
    const before = await spent();
    const input = [USER, call("a", { actions: [{ type: "wait" }] }), screenshot("a")] as ResponseInput;
    const content = [{ type: "text", text: "Done." }];
    const usage = { input_tokens: 40, output_tokens: 12 };
    const message = {
      id: "m",
      type: "message",
      role: "assistant",
      model: "c",
      content,
      stop_reason: "end_turn",
      usage,
    };
    makers.answer({ body: JSON.stringify(message) });
    const claude = await openai().responses.create({ model: "at-anthropic", input, tools: [COMPUTER] });
    expect(claude.output_text).toBe("Done.");
    const source = { type: "base64", media_type: "image/png", data: DATA };
    const toolResult = { type: "tool_result", tool_use_id: "a", content: [{ type: "image", source }] };
    expect(makers.requests.at(-1)?.body).toMatchObject({
      tools: [{ name: "computer", input_schema: { type: "object" } }],
      messages: [{}, { content: [{ type: "tool_use", name: "computer" }] }, { content: [toolResult] }],
    });
    const usageMetadata = { promptTokenCount: 40, candidatesTokenCount: 12, totalTokenCount: 52 };
    const candidates = [{ content: { role: "model", parts: [{ text: "Done." }] }, finishReason: "STOP" }];
    makers.answer({ body: JSON.stringify({ candidates, usageMetadata }) });
    const gemini = await openai().responses.create({ model: "at-google", input, tools: [COMPUTER] });
    expect(gemini.output_text).toBe("Done.");
    const response = { name: "computer", response: { content: "In the next message." } };
    const contents = makers.requests.at(-1)?.body.contents as { parts: object[] }[];
    expect(contents.slice(2).flatMap(({ parts }) => parts)).toMatchObject([
      { functionResponse: response },
      { inlineData: { mimeType: "image/png", data: DATA } },
    ]);
    expect((await spent()) - before).toBeCloseTo(2 * COST, 9);
  });
});

describe("Anthropic's tools for a screen on another provider", () => {
  const size = { display_width_px: 1280, display_height_px: 800 };
  const ask = (tool: object, messages: Anthropic.MessageParam[] = [USER]) =>
    anthropic().messages.create({ model: "claude", max_tokens: 99, messages, tools: [tool as Anthropic.Tool] });

  test.each([
    ["computer_20241022", "cursor_position", "scroll"],
    ["computer_20250124", "scroll", "zoom"],
    ["computer_20251124", "wait", "zoom"],
  ])("%s has the actions of its version.", async (type, action, later) => {
    await ask({ type, name: "computer", ...size });
    expect(bodyOf().tools).toMatchObject([
      {
        function: {
          name: "computer",
          description: expect.stringContaining("1280 × 800"),
          parameters: { properties: { action: { enum: expect.arrayContaining([action]) } } },
        },
      },
    ]);
    expect(JSON.stringify(bodyOf().tools)).not.toContain(`"${later}"`);
  });

  test("enable_zoom adds the action zoom.", async () => {
    await ask({ type: "computer_20251124", name: "computer", ...size, enable_zoom: true });
    expect(JSON.stringify(bodyOf().tools)).toContain("zoom (region)");
  });

  test("Calls come back as tool_use, whole and streamed, and the model sees the screenshot of their result.", async () => {
    const before = await spent();
    const tool = { type: "computer_20250124", name: "computer", ...size };
    const whole = await ask(tool);
    const block = { type: "tool_use", name: "computer", input: { action: "left_click", coordinate: [10, 20] } };
    expect(whole).toMatchObject({ stop_reason: "tool_use", content: [block] });
    const tools = [tool as unknown as Anthropic.Tool];
    const stream = anthropic().messages.stream({ model: "claude", max_tokens: 99, messages: [USER], tools });
    expect(await stream.finalMessage()).toMatchObject({ stop_reason: "tool_use", content: [block] });
    const source = { type: "base64" as const, media_type: "image/png" as const, data: DATA };
    const result: Anthropic.ToolResultBlockParam = {
      ...{ type: "tool_result", tool_use_id: "call_computer" },
      content: [
        { type: "text", text: "Clicked." },
        { type: "image", source },
      ],
    };
    const last = await ask(tool, [
      USER,
      { role: "assistant", content: whole.content },
      { role: "user", content: [result, { type: "text", text: "Next" }] },
    ]);
    expect(last.content).toEqual([{ type: "text", text: "Done." }]);
    expect(bodyOf().messages.slice(2)).toEqual([
      { role: "tool", tool_call_id: "call_computer", content: [{ type: "text", text: "Clicked." }] },
      { role: "user", content: [IMAGE] },
      { role: "user", content: "Next" },
    ]);
    expect((await spent()) - before).toBeCloseTo(3 * COST, 9);
  });

  test.each(["computer_toolset_20260801", "browser_toolset_20260801"])(
    "The toolset %s is refused by name.",
    async (type) => {
      const details = { param: "tools[0].type" };
      await expect(ask({ type })).rejects.toMatchObject({ status: 400, error: { error: { details } } });
    },
  );
});
