import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";
import { generateText, stepCountIs, streamText } from "ai";
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
import { type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";
import { type ScriptedServer, startScriptedServer } from "../wires/scripted-server.ts";
import { callOf, scripted } from "./scripted-answers.ts";

/** Tools that Anthropic or OpenAI defines and the client runs: passed to their makers, functions for all others. */

const SHELL = { commands: ["ls", "pwd"], timeout_ms: 1_000 };
const EXEC = { command: ["ls", "-l"], env: { A: "1" }, working_directory: "/tmp" };
const PATCH = { type: "update_file", path: "a.txt", diff: "@@\n-old\n+new\n" };
const CALLS: Record<string, unknown> = { shell: SHELL, local_shell: EXEC, apply_patch: PATCH };
const PRICE = { input: 1, cachedInput: 1, output: 1 };
/** Usage of `scripted`: 40 and 12 tokens. */
const COST = 0.000052;

let upstream: Upstream;
let makers: ScriptedServer;
let service: RunningService;
let rich: Organization;

/** Calls a tool until its result arrives, and then answers with text. */
const calling = (name: string, given: unknown): Behaviour => {
  return (request) => {
    const messages = request.body.messages as { role: string }[];
    const hasResult = messages.at(-1)?.role === "tool";
    const call = scripted([callOf(name, typeof given === "string" ? given : JSON.stringify(given))], "tool_calls");
    return (hasResult ? scripted([{ content: "Done." }]) : call)(request);
  };
};

beforeAll(async () => {
  upstream = await startUpstream();
  makers = await startScriptedServer();
  for (const [name, given] of Object.entries(CALLS)) upstream.behave(name, calling(name, given));
  upstream.behave("memory", calling("memory", { command: "view", path: "/memories" }));
  upstream.behave("strange", calling("shell", '{"commands":"ls"'));
  upstream.behave("single", calling("shell", { commands: "ls", timeout_ms: "soon" }));
  const ids = [...Object.keys(CALLS), "memory", "strange", "single"];
  const maker = (id: string, kind: string, host: string) => ({ id, kind, baseUrl: `http://${host}/v1`, apiKey: "key" });
  const route = (provider: string, model: string) => ({ provider, model });
  service = await startService({
    // The upstreams of both makers: their second wires belong to their own addresses.
    environment: { HTTP_PROXY: makers.origin, NO_PROXY: "127.0.0.1" },
    config: {
      providers: [
        { id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl, apiKey: "key" },
        maker("openai", "openai-compatible", "api.openai.com"),
        maker("anthropic", "anthropic", "api.anthropic.com"),
        maker("xai", "xai", "api.x.ai"),
      ],
      models: [
        ...ids.map((id) => ({ id, price: PRICE, routes: [route("up", id)] })),
        { id: "gpt", price: PRICE, routes: [route("openai", "gpt-6-astra")] },
        { id: "claude", price: PRICE, routes: [route("anthropic", "claude-opus-5")] },
        { id: "grok", price: PRICE, routes: [route("xai", "grok-5")] },
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

const ACTIONS = {
  shell: { type: "shell_call", action: SHELL, environment: { type: "local" } },
  local_shell: { type: "local_shell_call", action: { type: "exec", ...EXEC } },
  apply_patch: { type: "apply_patch_call", operation: PATCH },
};
const PREFIXES = { shell: "sh_", local_shell: "lsh_", apply_patch: "apc_" };
type Output = { sent: OpenAI.Responses.ResponseInputItem; content: string };
const OUTPUTS: Record<keyof typeof ACTIONS, Output> = {
  shell: {
    sent: {
      type: "shell_call_output",
      call_id: "call_shell",
      output: [{ stdout: "a.txt", stderr: "", outcome: { type: "exit", exit_code: 0 } }],
    },
    content: '[{"stdout":"a.txt","stderr":"","outcome":{"type":"exit","exit_code":0}}]',
  },
  local_shell: {
    sent: { type: "local_shell_call_output", id: "call_local_shell", output: "a.txt" },
    content: "a.txt",
  },
  apply_patch: {
    sent: { type: "apply_patch_call_output", call_id: "call_apply_patch", status: "failed", output: "No such file" },
    content: "failed: No such file",
  },
};

describe("OpenAI's tools on another provider", () => {
  test.each(["shell", "local_shell", "apply_patch"] as const)(
    "%s is a function, its call comes back in its own form, and its result goes to the model.",
    async (name) => {
      const before = await spent();
      const asked = { model: name, input: "Go", tools: [{ type: name }] as OpenAI.Responses.Tool[] };
      const whole = await openai().responses.create(asked);
      const item = { id: expect.stringMatching(PREFIXES[name]), status: "completed", call_id: `call_${name}` };
      expect(whole.output).toEqual([{ ...item, ...ACTIONS[name] }]);
      expect(bodyOf().tools).toEqual([
        {
          type: "function",
          function: { name, description: expect.any(String), parameters: expect.objectContaining({ type: "object" }) },
        },
      ]);
      const streamed = await openai().responses.stream(asked).finalResponse();
      expect(streamed.output).toEqual([{ ...item, ...ACTIONS[name] }]);

      const { sent, content } = OUTPUTS[name];
      const input = [{ role: "user" as const, content: "Go" }, ...whole.output, sent] as OpenAI.Responses.ResponseInput;
      const last = await openai().responses.create({ ...asked, input });
      expect(last.output_text).toBe("Done.");
      const [, call, result] = bodyOf().messages;
      expect(call).toMatchObject({ role: "assistant", tool_calls: [{ id: `call_${name}`, function: { name } }] });
      expect(result).toEqual({ role: "tool", tool_call_id: `call_${name}`, content });
      const referred = await openai().responses.create({ ...asked, input: [sent], previous_response_id: whole.id });
      expect(referred.output_text).toBe("Done.");
      expect(bodyOf().messages).toHaveLength(3);
      expect((await spent()) - before).toBeCloseTo(4 * COST, 9);
    },
  );

  test.each([
    ["strange", { commands: [] }],
    ["single", { commands: ["ls"] }],
  ])("arguments that are not in the form of the tool still make a valid call: %s.", async (model, action) => {
    const { output } = await openai().responses.create({ model, input: "Go", tools: [{ type: "shell" }] });
    expect(output).toMatchObject([{ type: "shell_call", action }]);
  });

  test("can be chosen, alone and among others.", async () => {
    const tools = [{ type: "shell" }, { type: "apply_patch" }] as const;
    const ask = (tool_choice: OpenAI.Responses.ResponseCreateParams["tool_choice"]) =>
      openai().responses.create({ model: "shell", input: "Go", tools: [...tools], tool_choice });
    await ask({ type: "shell" });
    expect(bodyOf()).toMatchObject({ tool_choice: { type: "function", function: { name: "shell" } } });
    await ask({ type: "allowed_tools", mode: "required", tools: [{ type: "shell" }] });
    expect(bodyOf()).toMatchObject({ tool_choice: "required", tools: [{ function: { name: "shell" } }] });
    await expect(ask({ type: "local_shell" } as never)).rejects.toMatchObject({ param: "tool_choice.name" });
  });

  test("the skills of a shell are part of its description.", async () => {
    const skills = [{ name: "deploy", description: "Deploys the site.", path: "/skills/deploy" }];
    const tools = [{ type: "shell" as const, environment: { type: "local" as const, skills } }];
    await openai().responses.create({ model: "shell", input: "Go", tools });
    expect(JSON.stringify(bodyOf())).toContain("Deploys the site.");
  });

  test("reach xAI, which has this wire but not these tools, as functions, with their earlier calls.", async () => {
    const named = { id: "fc_1", type: "function_call", call_id: "call_1", name: "shell", status: "completed" };
    const output_tokens_details = { reasoning_tokens: 0 };
    const usage = { input_tokens: 5, output_tokens: 7, total_tokens: 12, output_tokens_details };
    const call = { ...named, arguments: JSON.stringify(SHELL) };
    const head = { id: "r", object: "response", created_at: 1, model: "grok-5", status: "completed" };
    makers.answer({ body: JSON.stringify({ ...head, output: [call], usage }) });
    const { output } = await openai().responses.create({ model: "grok", input: "Go", tools: [{ type: "shell" }] });
    expect(output).toMatchObject([{ type: "shell_call", call_id: "call_1", action: SHELL }]);
    expect(makers.requests.at(-1)?.body.tools).toMatchObject([{ type: "function", name: "shell" }]);
    makers.answer({ body: JSON.stringify({ ...head, output: [call], usage }) });
    const item = { id: "sh_1", call_id: "call_shell", status: "completed" as const, ...ACTIONS.shell };
    const input = [{ role: "user", content: "Go" }, item, OUTPUTS.shell.sent] as OpenAI.Responses.ResponseInput;
    await openai().responses.create({ model: "grok", input });
    expect(makers.requests.at(-1)?.body.input).toMatchObject([
      { role: "user" },
      { type: "function_call", call_id: "call_shell", name: "shell" },
      { type: "function_call_output", call_id: "call_shell" },
    ]);
  });

  test("a shell in a container of the provider is refused by name.", async () => {
    const tools = [{ type: "shell", environment: { type: "container_auto" } }];
    const asked = openai().responses.create({ model: "shell", input: "Go", tools } as never);
    const refused = { status: 400, code: "unsupported_value", param: "tools[0].environment.type" };
    await expect(asked).rejects.toMatchObject(refused);
  });
});

describe("The AI SDK's tools of OpenAI on another provider", () => {
  const provider = () => createOpenAI({ baseURL: service.baseUrl, apiKey: rich.token });

  test("run until the model answers, streamed and not.", async () => {
    const run: unknown[] = [];
    const shell = provider().tools.shell({
      execute: async ({ action }) => {
        run.push(action.commands);
        return { output: [{ stdout: "x", stderr: "", outcome: { type: "exit", exitCode: 0 } }] };
      },
    });
    const asked = { model: provider()("shell"), prompt: "Go", stopWhen: stepCountIs(3), maxRetries: 0 } as const;
    expect((await generateText({ ...asked, tools: { shell } })).text).toBe("Done.");
    expect(await streamText({ ...asked, tools: { shell } }).text).toBe("Done.");
    expect(run).toEqual([SHELL.commands, SHELL.commands]);
    const patches: unknown[] = [];
    const apply_patch = provider().tools.applyPatch({
      execute: async ({ operation }) => {
        patches.push(operation);
        return { status: "completed", output: "Applied" };
      },
    });
    const patched = streamText({ ...asked, model: provider()("apply_patch"), tools: { apply_patch } });
    expect(await patched.text).toBe("Done.");
    expect(patches).toEqual([PATCH]);
    expect(bodyOf().messages.at(-1)).toMatchObject({ role: "tool", content: "completed: Applied" });
  });
});

describe("OpenAI's tools at OpenAI", () => {
  const usage = { input_tokens: 40, output_tokens: 12 };
  const SHELL_CALL = { id: "sh_1", call_id: "call_1", status: "completed", ...ACTIONS.shell };
  const COMPUTER_CALL = {
    ...{ id: "cu_1", type: "computer_call", call_id: "call_2", status: "completed", pending_safety_checks: [] },
    actions: [{ type: "click", x: 1, y: 2, button: "left" }],
  };
  const screenshot = { type: "computer_screenshot", image_url: "data:image/png;base64,iVBORw0KGgo=" };
  const input = [
    { role: "user", content: "Go" },
    SHELL_CALL,
    OUTPUTS.shell.sent,
    COMPUTER_CALL,
    { type: "computer_call_output", call_id: "call_2", output: screenshot, acknowledged_safety_checks: [] },
  ];

  test("pass with their calls and results as they are, and the answer's items too.", async () => {
    const before = await spent();
    const output = [SHELL_CALL, COMPUTER_CALL];
    const response = { id: "r", status: "completed", output, usage };
    const events: JsonEvent[] = [
      { type: "response.created", response: { id: "r" } },
      { type: "response.output_item.added", output_index: 0, item: { ...SHELL_CALL, status: "in_progress" } },
      { type: "response.shell_call_command.added", output_index: 0, command_index: 0, command: "" },
      { type: "response.shell_call_command.delta", output_index: 0, command_index: 0, delta: "ls" },
      { type: "response.shell_call_command.done", output_index: 0, command_index: 0, command: "ls" },
      ...output.map((item, index) => ({ type: "response.output_item.done", output_index: index, item })),
      { type: "response.completed", response },
    ];
    makers.answer({ body: JSON.stringify(response) });
    makers.answer({ headers: { "content-type": "text/event-stream" }, body: sse(events) });
    const tools = [{ type: "shell" }, { type: "apply_patch" }, { type: "local_shell" }, { type: "computer" }];
    const asked = { model: "gpt", input, tools } as unknown as OpenAI.Responses.ResponseCreateParamsNonStreaming;
    expect((await openai().responses.create(asked)).output).toEqual(output);
    const streamed = await openai().responses.create({ ...asked, stream: true });
    const heard: string[] = [];
    for await (const event of streamed) heard.push(event.type);
    expect(heard).toContain("response.shell_call_command.delta");
    for (const { path, body } of makers.requests) {
      expect(path).toMatch(/\/v1\/responses$/);
      expect(body.tools).toEqual([{ type: "shell", environment: { type: "local" } }, ...tools.slice(1)]);
      expect(body.input).toEqual([{ type: "message", ...input[0] }, ...input.slice(1)]);
    }
    expect((await spent()) - before).toBeCloseTo(2 * COST, 9);
  });
});

describe("Anthropic's tools", () => {
  test("the SDK's runner runs the memory tool on another provider until the model answers.", async () => {
    const before = await spent();
    const viewed: string[] = [];
    const nothing = () => "";
    const memory = betaMemoryTool({
      ...{ create: nothing, str_replace: nothing, insert: nothing, delete: nothing, rename: nothing },
      view: ({ path }) => {
        viewed.push(path);
        return "notes.md";
      },
    });
    const last = await anthropic().beta.messages.toolRunner({
      ...{ model: "memory", max_tokens: 100, messages: [{ role: "user", content: "Go" }], tools: [memory] },
    });
    expect(viewed).toEqual(["/memories"]);
    expect(last.content).toEqual([{ type: "text", text: "Done." }]);
    expect(bodyOf().messages.at(-1)).toEqual({ role: "tool", tool_call_id: "call_memory", content: "notes.md" });
    expect(bodyOf()).toMatchObject({ tools: [{ function: { name: "memory", parameters: { type: "object" } } }] });
    expect((await spent()) - before).toBeCloseTo(2 * COST, 9);
  });

  test("pass to Anthropic as they are, in every published version, and the calls of a toolset come back.", async () => {
    const before = await spent();
    const size = { display_width_px: 800, display_height_px: 600 };
    const tools = [
      ...["20241022", "20250124"].map((version) => ({ type: `bash_${version}`, name: "bash" })),
      ...["20241022", "20250124"].map((version) => ({ type: `text_editor_${version}`, name: "str_replace_editor" })),
      { type: "text_editor_20250429", name: "str_replace_based_edit_tool" },
      { type: "text_editor_20250728", name: "str_replace_based_edit_tool", max_characters: 1_000 },
      { type: "memory_20250818", name: "memory" },
      { type: "computer_20251124", name: "computer", ...size, display_number: 1, enable_zoom: true },
      { type: "computer_toolset_20260801", configs: { double_click: { enabled: false } } },
    ];
    const content = [
      { type: "tool_use", id: "toolu_1", name: "left_click", toolset_name: "computer", input: { x: 1 } },
    ];
    const usage = { input_tokens: 40, output_tokens: 12 };
    makers.answer({ body: JSON.stringify({ id: "m", type: "message", content, stop_reason: "tool_use", usage }) });
    const message = await anthropic().beta.messages.create({
      ...{ model: "claude", max_tokens: 100, betas: ["computer-use-2025-11-24"] },
      messages: [
        { role: "user", content: "Go" },
        { role: "assistant", content: content as never },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "ok" }] },
      ],
      tools: tools as never,
    });
    expect(message.content).toEqual(content);
    expect(makers.requests[0]?.headers["anthropic-beta"]).toBe("computer-use-2025-11-24");
    expect(makers.requests[0]?.body).toMatchObject({ tools, messages: [{}, { content }, {}] });
    expect((await spent()) - before).toBeCloseTo(COST, 9);
  });
});
