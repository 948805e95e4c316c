import { readFile } from "node:fs/promises";
import { Type } from "typebox";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compileCheck } from "../../src/api/validation.ts";
import { operator } from "../support/admin.ts";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { type Behaviour, startUpstream, type Upstream } from "../support/upstream.ts";
import {
  expectEmbeddings,
  expectError,
  expectResponse,
  expectResponseEvent,
  type StreamedEvent,
} from "./contract-checks.ts";
import { callOf, SCRIPTED_ANSWERS, scripted } from "./scripted-answers.ts";

/** All cases of the compliance suite of Open Responses (github.com/openresponses/openresponses), by their ids. */
const CASES = {
  yes: [
    "basic-response",
    "streaming-response",
    "system-prompt",
    "tool-calling",
    "tool-calling-streaming",
    "function-call-roundtrip",
    "image-input",
    "file-input",
    "multi-turn",
    "previous-response-id",
  ],
  no: ["file-search", "offline-web-search"],
};

const Nullable = (schema: Parameters<typeof Type.Union>[0][number]) => Type.Union([schema, Type.Null()]);
/** Fields that Open Responses requires and OpenAI's types leave out, or let be null. */
const openResponsesIssue = compileCheck(
  Type.Object({
    completed_at: Nullable(Type.Integer()),
    previous_response_id: Nullable(Type.String()),
    truncation: Type.Enum(["auto", "disabled"]),
    top_p: Type.Number(),
    temperature: Type.Number(),
    presence_penalty: Type.Number(),
    frequency_penalty: Type.Number(),
    top_logprobs: Type.Integer(),
    text: Type.Object({ format: Type.Object({ type: Type.String() }) }),
    reasoning: Nullable(
      Type.Object({ effort: Nullable(Type.String()), summary: Nullable(Type.Enum(["concise", "detailed", "auto"])) }),
    ),
    tools: Type.Array(
      Type.Object({
        type: Type.String(),
        name: Type.String(),
        description: Nullable(Type.String()),
        parameters: Nullable(Type.Object({})),
        strict: Nullable(Type.Boolean()),
      }),
    ),
    usage: Nullable(Type.Object({ input_tokens: Type.Integer(), output_tokens: Type.Integer() })),
    max_output_tokens: Nullable(Type.Integer()),
    max_tool_calls: Nullable(Type.Integer()),
    store: Type.Boolean(),
    background: Type.Boolean(),
    service_tier: Type.String(),
    safety_identifier: Nullable(Type.String()),
    prompt_cache_key: Nullable(Type.String()),
  }),
);

const ANSWERS: Record<string, Behaviour> = {
  ...SCRIPTED_ANSWERS,
  weather: (request) => {
    const messages = request.body.messages as { role: string }[];
    const isAnswered = messages.some(({ role }) => role === "tool");
    const answer = isAnswered ? [{ content: "64 degrees." }] : [callOf("get_weather", '{"location":"Bern"}')];
    return scripted(answer, isAnswered ? "stop" : "tool_calls")(request);
  },
};

let upstream: Upstream;
let service: RunningService;
let token: string;
let poor: string;

beforeAll(async () => {
  upstream = await startUpstream();
  for (const [model, behaviour] of Object.entries(ANSWERS)) upstream.behave(model, behaviour);
  const capabilities = ["chat", "streaming", "tools", "structured_output", "vision", "reasoning"];
  const price = { input: 1_000, cachedInput: 100, output: 2_000 };
  service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000 },
      providers: [upstream.provider],
      models: Object.keys(ANSWERS).map((id) => {
        return { id, price, capabilities, contextWindow: 50_000, routes: [{ provider: "up", model: id }] };
      }),
    },
  });
  const organization = await makeOrganization(service, "1000000");
  ({ token } = organization);
  ({ token: poor } = await makeOrganization(service, "0"));
  const options = { method: "PATCH", headers: { ...operator(service).headers } };
  const path = `/admin/v1/organizations/${organization.id}`;
  expect((await send(service, path, null, { keeps_conversations: true }, options)).status).toBe(200);
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

function expectOpenResponse(value: unknown) {
  expect(openResponsesIssue(value)).toBeUndefined();
  return expectResponse(value);
}

const post = (body: object, sender = token) => send(service, "/v1/responses", sender, { model: "text", ...body });

async function create(body: object) {
  const answer = await post(body);
  expect(answer.status).toBe(200);
  return expectOpenResponse(await answer.json());
}

async function stream(body: object): Promise<StreamedEvent[]> {
  const events = await eventsOf(await post({ ...body, stream: true }));
  for (const { response } of events) if (response !== undefined) expectOpenResponse(response);
  return events;
}

/** Types of the events that were checked. */
const checkedTypes = new Set<string>();

async function eventsOf(answer: Response): Promise<StreamedEvent[]> {
  expect(answer.headers.get("content-type")).toContain("text/event-stream");
  const records = (await answer.text()).split("\n\n").filter((record) => record.startsWith("event: "));
  return records.map((record, number) => {
    const [, name, json = ""] = /^event: (.*)\ndata: (.*)$/.exec(record) ?? [];
    const event = expectResponseEvent(JSON.parse(json));
    checkedTypes.add(event.type);
    expect([event.type, event.sequence_number]).toEqual([name, number]);
    return event;
  });
}

const says = (content: unknown, role = "user") => ({ type: "message", role, content });
const sentMessages = () => upstream.requests.at(-1)?.body.messages;
const typesOf = (events: readonly StreamedEvent[]) => events.map(({ type }) => type);
const WEATHER = {
  type: "function",
  name: "get_weather",
  parameters: { type: "object", properties: { location: { type: "string" } }, required: ["location"] },
};
const PNG =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PDF = `data:application/pdf;base64,${Buffer.from("%PDF-1.1\n").toString("base64")}`;

describe("Open Responses", () => {
  test("basic-response", async () => {
    const response = await create({ input: [says("Say hello.")] });
    expect(response).toMatchObject({ status: "completed", output: [{ type: "message", status: "completed" }] });
    expect(response.completed_at).toBeGreaterThanOrEqual(response.created_at);
  });

  test("streaming-response", async () => {
    const events = await stream({ input: [says("Count.")] });
    expect(typesOf(events)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
    const last = events.at(-1)?.response as { completed_at: number };
    expect(last).toMatchObject({ status: "completed", output: [{ content: [{ text: "Hello to you." }] }] });
    expect(last.completed_at).toEqual(expect.any(Number));
    expect(events[0]?.response).toMatchObject({ status: "in_progress", completed_at: null, output: [], usage: null });
  });

  test("system-prompt", async () => {
    const response = await create({ input: [says("You are a pirate.", "system"), says("Say hello.")] });
    expect(response).toMatchObject({ status: "completed", output: [{ type: "message" }] });
    expect(sentMessages()).toEqual([
      { role: "system", content: "You are a pirate." },
      { role: "user", content: "Say hello." },
    ]);
  });

  test("tool-calling", async () => {
    const response = await create({ model: "calling", input: [says("How is the weather?")], tools: [WEATHER] });
    const call = { type: "function_call", name: "get_weather", arguments: '{"location":"Bern"}', status: "completed" };
    expect(response).toMatchObject({ output: [call], tools: [{ ...WEATHER, description: null, strict: null }] });
  });

  test("tool-calling-streaming", async () => {
    const events = await stream({ model: "calling", input: [says("How is the weather?")], tools: [WEATHER] });
    expect(typesOf(events)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.function_call_arguments.delta",
      "response.function_call_arguments.done",
      "response.output_item.done",
      "response.completed",
    ]);
    for (const event of events.filter(({ item }) => item)) expect(event.item).toMatchObject({ type: "function_call" });
  });

  test("function-call-roundtrip", async () => {
    const tool_choice = { type: "function", name: "get_weather" };
    const first = await create({ model: "weather", input: "How is the weather?", tools: [WEATHER], tool_choice });
    expect(first.tool_choice).toEqual(tool_choice);
    const [call] = first.output;
    if (call?.type !== "function_call") throw new Error(`The output is a ${call?.type}`);
    const input = [{ type: "function_call_output", call_id: call.call_id, output: "64 degrees and clear" }];
    const second = await create({ model: "weather", input, previous_response_id: first.id });
    expect(second).toMatchObject({ status: "completed", output: [{ content: [{ text: "64 degrees." }] }] });
  });

  test("image-input", async () => {
    const parts = [
      { type: "input_text", text: "What do you see?" },
      { type: "input_image", image_url: PNG },
    ];
    expect(await create({ input: [says(parts)] })).toMatchObject({ status: "completed", output: [{}] });
    expect(sentMessages()).toMatchObject([{ content: [{ type: "text" }, { image_url: { url: PNG } }] }]);
  });

  test("file-input", async () => {
    const file = { filename: "title.pdf", file_data: PDF };
    const parts = [
      { type: "input_text", text: "What is its title?" },
      { type: "input_file", ...file },
    ];
    expect(await create({ input: [says(parts)] })).toMatchObject({ status: "completed", output: [{}] });
    expect(sentMessages()).toMatchObject([{ content: [{ type: "text" }, { type: "file", file }] }]);
  });

  test("multi-turn", async () => {
    const input = [says("My name is Alice."), says("Hello Alice!", "assistant"), says("What is my name?")];
    expect(await create({ input })).toMatchObject({ status: "completed", output: [{}] });
    expect(sentMessages()).toMatchObject([{ role: "user" }, { role: "assistant" }, { role: "user" }]);
  });

  test("previous-response-id", async () => {
    const first = await create({ input: "Remember this code word: papaya." });
    const second = await create({ input: "Which code word?", previous_response_id: first.id });
    expect(second).toMatchObject({ status: "completed", previous_response_id: first.id, output: [{}] });
    expect(sentMessages()).toMatchObject([{ content: "Remember this code word: papaya." }, {}, { role: "user" }]);
  });

  test.each([
    ["file-search", { type: "file_search", vector_store_ids: ["vs_1"] }],
    ["offline-web-search", { type: "web_search", external_web_access: false }],
  ])("%s does not apply: the tool is refused.", async (_id, tool) => {
    const refused = await post({ input: "Search", tools: [tool], tool_choice: { type: tool.type } });
    expect(refused.status).toBe(400);
    expect(expectError(await refused.json())).toMatchObject({ code: "unsupported_value", param: "tools[0].type" });
  });
});

test("The documentation lists each case of Open Responses, and each has a test that ran.", async ({ task }) => {
  const page = await readFile(new URL("../../docs/responses.md", import.meta.url), "utf8");
  const rows = [...page.matchAll(/^\| `([a-z-]+)` \| (yes|no) \|/gm)].map(([, id, applies]) => [applies, id]);
  const cases = Object.entries(CASES).flatMap(([applies, ids]) => ids.map((id) => [applies, id]));
  expect(rows).toEqual(cases);
  const suite = task.file.tasks.find(({ name }) => name === "Open Responses");
  const tests = suite !== undefined && "tasks" in suite ? suite.tasks : [];
  const ran = tests.filter(({ mode, result }) => mode === "run" && result?.state === "pass");
  expect(ran.map(({ name }) => name.split(" ")[0])).toEqual(cases.map(([, id]) => id));
});

describe("OpenAI's types describe", () => {
  const asking: Record<string, object> = {
    custom: { tools: [{ type: "custom", name: "patch" }] },
    searching: { tools: [{ type: "tool_search", execution: "client", description: "d", parameters: {} }] },
    calling: { tools: [WEATHER], tool_choice: "required" },
    probable: { include: ["message.output_text.logprobs"], top_logprobs: 0 },
    text: { text: { format: { type: "json_schema", name: "n", schema: { type: "object" }, strict: true } } },
    thinking: {
      reasoning: { effort: "low", summary: "auto" },
      metadata: { a: "b" },
      user: "u",
      instructions: "Be kind.",
    },
  };

  test.each(Object.keys(SCRIPTED_ANSWERS).filter((model) => model !== "breaking"))(
    "the response of %s and each of its events.",
    async (model) => {
      const body = { model, input: "Go", ...asking[model] };
      // A custom tool has no parameters, so the schema of Open Responses, which has only functions, does not apply.
      const response = expectResponse(await (await post(body)).json());
      const answer = await post({ ...body, stream: true });
      const events = await eventsOf(answer);
      const last = events.at(-1);
      const isCut = model === "cut" || model === "filtered";
      expect(last?.type).toBe(isCut ? "response.incomplete" : "response.completed");
      const ended = expectResponse(last?.response);
      for (const one of [response, ended]) expect(one.completed_at === null).toBe(isCut);
      const outputOf = ({ output }: typeof response) => output.map((item) => ({ ...item, id: "" }));
      expect(outputOf(ended)).toEqual(outputOf(response));
    },
  );

  test("the events of a failure in the middle of a stream.", async () => {
    const events = await stream({ model: "breaking", input: "Go" });
    expect(events.at(-1)).toMatchObject({
      type: "response.failed",
      response: { status: "failed", completed_at: null },
    });
  });

  test("each type of event that the service can send.", async () => {
    const sources = await Promise.all(
      ["encode", "output"].map((name) =>
        readFile(new URL(`../../src/api/responses/${name}.ts`, import.meta.url), "utf8"),
      ),
    );
    const written = sources.flatMap((source) =>
      [...source.matchAll(/"(response\.[a-z_.]+)"/g)].map(([, type]) => type),
    );
    // The type of the last event is put together from the status.
    const types = new Set([...written, "error", "response.completed", "response.incomplete"]);
    expect(types.size).toBeGreaterThan(20);
    expect([...checkedTypes].sort()).toEqual([...types].sort());
  });

  test("a stored response.", async () => {
    const { id } = await create({ input: "Go" });
    const stored = expectOpenResponse(await (await send(service, `/v1/responses/${id}`, token)).json());
    expect(stored).toMatchObject({ id, status: "completed", completed_at: expect.any(Number) });
  });

  test("a response that is sent again, which is the same.", async () => {
    const options = { headers: { "idempotency-key": "again" } };
    const ask = async () => {
      const answer = await send(service, "/v1/responses", token, { model: "text", input: "Go" }, options);
      return expectOpenResponse(await answer.json());
    };
    const first = await ask();
    expect(first.completed_at).not.toBeNull();
    expect(await ask()).toEqual(first);
  });

  test.each([["text"], [["one", "two"]], [[[1, 2], [3]]]])("the embeddings of %j.", async (input) => {
    const answer = await send(service, "/v1/embeddings", token, { model: "sandbox/embed", input });
    expect(answer.status).toBe(200);
    const { data } = expectEmbeddings(await answer.json());
    expect(data.map(({ index }) => index)).toEqual(Array.isArray(input) ? [...input.keys()] : [0]);
  });

  test.each(["/v1/responses", "/v1/embeddings"])("the errors of %s.", async (path) => {
    const model = path === "/v1/responses" ? "text" : "sandbox/embed";
    const asked = { model, input: "Go" };
    const sent: [number, string, string | null, unknown][] = [
      [400, "invalid_json", token, "{"],
      [400, "missing_required_parameter", token, { model }],
      [400, "invalid_type", token, { ...asked, user: 1 }],
      [401, "missing_token", null, asked],
      [401, "invalid_token", `${token}0`, asked],
      [402, "insufficient_credits", poor, asked],
      [404, "model_not_found", token, { ...asked, model: "none" }],
    ];
    const expected = sent.map(([status, code]) => [status, code]);
    const answers = [];
    for (const [, , sender, body] of sent) {
      const answer = await send(service, path, sender, body);
      answers.push([answer.status, expectError(await answer.json()).code]);
    }
    expect(answers).toEqual(expected);
  });
});
