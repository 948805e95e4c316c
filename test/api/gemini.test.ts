import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import {
  eventsOf,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startService,
} from "../support/service.ts";
import { answering, breaking, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const usage = {
  prompt_tokens: 40,
  completion_tokens: 12,
  total_tokens: 52,
  prompt_tokens_details: { cached_tokens: 8 },
  completion_tokens_details: { reasoning_tokens: 5 },
};
const COST = (32 * 1_000 + 8 * 100 + 12 * 2_000) / 1e6;
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const GOOGLE_SIGNATURE = "CiQBjz1rX0pnb29nbGU=";
const DECLARATION = {
  name: "look",
  description: "Looks.",
  parameters: { type: "OBJECT", properties: { at: { type: "STRING", nullable: true }, n: { type: "INTEGER" } } },
};
const LOOK = { functionDeclarations: [DECLARATION] };

const TALK = {
  ...{ name: "models/talk", displayName: "Model talk", inputTokenLimit: 10_000, thinking: true },
  supportedGenerationMethods: ["generateContent", "streamGenerateContent", "countTokens"],
};

interface Generated {
  candidates: {
    content: { role: string; parts: Record<string, unknown>[] };
    finishReason?: string;
    groundingMetadata?: unknown;
  }[];
  usageMetadata?: Record<string, number>;
  modelVersion: string;
  responseId: string;
}
interface Failed {
  error: {
    code: number;
    status: string;
    message: string;
    details: { reason: string; metadata: Record<string, string> }[];
  };
}

let upstream: Upstream;
let service: RunningService;
let payer: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  const price = { input: 1_000, cachedInput: 100, output: 2_000 };
  const capabilities = ["chat", "streaming", "tools", "vision", "structured_output", "reasoning"];
  const models = ["talk", "act", "break"].map((id) => {
    return {
      id,
      name: `Model ${id}`,
      price,
      capabilities,
      contextWindow: 10_000,
      routes: [{ provider: "up", model: id }],
    };
  });
  service = await startService({ config: { providers: [upstream.provider], models } });
  upstream.behave("talk", answering({ words: ["Good ", "day."], usage }));
  upstream.behave("break", breaking);
  const calls = [
    { id: "call_1", type: "function", function: { name: "look", arguments: '{"at":"here"}' } },
    { id: "call_2", type: "function", function: { name: "look", arguments: "{}" } },
  ];
  const signed = calls.map((call, index) => {
    const extra_content =
      index === 0 ? { google: { thought_signature: GOOGLE_SIGNATURE } } : { anthropic: { reasoning: [{ text: "x" }] } };
    return { ...call, extra_content };
  });
  upstream.behave("act", (request) => {
    const { response, body } = request;
    if ((body.messages as { role: string }[]).at(-1)?.role === "tool")
      return answering({ words: ["Done."], usage })(request);
    const message = { role: "assistant", content: "I look.", reasoning_content: "Hm.", tool_calls: signed };
    if (body.stream !== true) {
      return sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: "tool_calls" }], usage });
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (delta: object, finish_reason: string | null = null) =>
      response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
    event({ role: "assistant", reasoning_content: "Hm." });
    event({ content: "I look." });
    for (const [index, call] of signed.entries()) {
      const { name, arguments: text } = call.function;
      event({ tool_calls: [{ index, ...call, function: { name, arguments: text.slice(0, 5) } }] });
      event({ tool_calls: [{ index, function: { arguments: text.slice(5) } }] });
    }
    event({}, "tool_calls");
    response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
  });
});
beforeEach(async () => {
  payer = await makeOrganization(service, "1000");
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const call = (path: string, body: object, token: string | null = payer.token, headers: Record<string, string> = {}) =>
  send(service, `/v1beta/models/${path}`, null, body, {
    headers: { ...(token !== null && { "x-goog-api-key": token }), ...headers },
  });
const generate = async (body: object, model = "talk") => {
  const answer = await call(`${model}:generateContent`, body);
  return { status: answer.status, headers: answer.headers, body: (await answer.json()) as Generated & Failed };
};
const say = (text: string) => ({ contents: [{ role: "user", parts: [{ text }] }] });
/** More fields than the header `x-tollgate-ignored` lists. */
const UNKNOWN = Object.fromEntries(Array.from({ length: 20 }, (_, nth) => [`unknown${nth}`, 1]));
const configured = (generationConfig: object) => ({ ...say("a"), generationConfig });
const sentBody = () => upstream.requests.at(-1)?.body ?? { model: "none" };

test("An answer has Gemini's form, and is charged like every other one.", async () => {
  const { status, headers, body } = await generate({
    ...say("Hello"),
    system_instruction: { parts: [{ text: "Be kind." }] },
    generationConfig: {
      ...{ temperature: 0.5, topP: 0.9, maxOutputTokens: 100, stopSequences: ["END"], seed: 7 },
      thinkingConfig: { thinkingBudget: 8_000 },
    },
    safetySettings: [{ category: "HARM_CATEGORY_HARASSMENT", threshold: "BLOCK_NONE" }],
    labels: { team: "a" },
  });
  expect(status).toBe(200);
  expect(headers.get("x-tollgate-ignored")).toBe("safetySettings");
  expect(headers.get("x-credits-charged")).toBe(String(COST));
  expect(body).toEqual({
    candidates: [{ content: { role: "model", parts: [{ text: "Good day." }] }, index: 0, finishReason: "STOP" }],
    usageMetadata: {
      ...{ promptTokenCount: 40, cachedContentTokenCount: 8, candidatesTokenCount: 7, thoughtsTokenCount: 5 },
      ...{ totalTokenCount: 52, cost: COST },
    },
    modelVersion: "talk",
    responseId: expect.stringMatching(/^[0-9a-f]{32}$/),
  });
  expect(sentBody()).toMatchObject({
    messages: [
      { role: "system", content: "Be kind." },
      { role: "user", content: "Hello" },
    ],
    ...{ temperature: 0.5, top_p: 0.9, stop: ["END"], seed: 7, reasoning_effort: "medium" },
  });
  expect((await settledUsage(service, payer.token)).creditsUsed).toBe(COST);
});

test("A stream is server-sent events with alt=sse and one JSON list without, and both are charged.", async () => {
  const events = await call("talk:streamGenerateContent?alt=sse", say("Hello"));
  expect(events.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
  const text = await events.text();
  expect(text).toMatch(/^(data: .+\r\n\r\n)+$/);
  const list = await call("talk:streamGenerateContent", say("Hello"));
  expect(list.headers.get("content-type")).toBe("application/json; charset=utf-8");
  for (const parts of [eventsOf(text.replaceAll("\r\n", "\n")).map((one) => JSON.parse(one)), await list.json()]) {
    const all = parts as Generated[];
    const texts = all.flatMap(({ candidates }) =>
      candidates.flatMap(({ content }) => content.parts.map((part) => part.text)),
    );
    expect(texts.join("")).toBe("Good day.");
    expect(all.filter(({ usageMetadata }) => usageMetadata !== undefined)).toEqual([all.at(-1)]);
    expect(all.at(-1)?.candidates[0]?.finishReason).toBe("STOP");
    expect(all.at(-1)?.usageMetadata).toMatchObject({ totalTokenCount: 52, cost: COST });
  }
  expect((await settledUsage(service, payer.token)).creditsUsed).toBe(2 * COST);
});

test.each([false, true])(
  "Calls come with their signatures, and go back with them; streamed: %s.",
  async (isStreamed) => {
    const asked = { ...say("Go"), tools: [LOOK], toolConfig: { functionCallingConfig: { mode: "ANY" } } };
    const answer = await call(isStreamed ? "act:streamGenerateContent" : "act:generateContent", asked);
    const answers = ([await answer.json()] as (Generated | Generated[])[]).flat();
    const parts = answers.flatMap(({ candidates }) => candidates.flatMap(({ content }) => content.parts));
    expect(sentBody()).toMatchObject({
      tools: [
        {
          function: {
            parameters: { type: "object", properties: { at: { type: ["string", "null"] }, n: { type: "integer" } } },
          },
        },
      ],
      tool_choice: "required",
    });
    const [thought, text, first, second] = parts;
    expect([thought, text]).toEqual([{ text: "Hm.", thought: true }, { text: "I look." }]);
    expect(first).toEqual({
      functionCall: { id: "call_1", name: "look", args: { at: "here" } },
      thoughtSignature: GOOGLE_SIGNATURE,
    });
    expect(second?.functionCall).toEqual({ id: "call_2", name: "look", args: {} });
    // Clients decode signatures and encode them again, some with the other alphabet.
    const reencoded = parts.map((part) => {
      const { thoughtSignature: signature } = part;
      if (typeof signature !== "string") return part;
      return { ...part, thoughtSignature: Buffer.from(signature, "base64").toString("base64url") };
    });
    const results = [2, 1].map((n) => ({
      functionResponse: { id: `call_${n}`, name: "look", response: { output: `seen ${n}` } },
    }));
    const history = [
      ...asked.contents,
      { role: "model", parts: isStreamed ? parts : reencoded },
      { role: "user", parts: results },
    ];
    const { body } = await generate({ contents: history, tools: [LOOK] }, "act");
    expect(body.candidates[0]?.content.parts).toEqual([{ text: "Done." }]);
    const [, called, ...others] = sentBody().messages as Record<string, unknown>[];
    expect(called).toMatchObject({
      content: "I look.",
      tool_calls: [
        { id: "call_1", function: { name: "look", arguments: '{"at":"here"}' } },
        { id: "call_2", function: { name: "look", arguments: "{}" } },
      ],
    });
    expect(others).toEqual([
      { role: "tool", tool_call_id: "call_2", content: '{"output":"seen 2"}' },
      { role: "tool", tool_call_id: "call_1", content: '{"output":"seen 1"}' },
    ]);
  },
);

test("Calls without ids find their results by name, and a result without a call is refused.", async () => {
  const history = {
    role: "model",
    parts: [{ functionCall: { name: "look", args: {} } }, { functionCall: { name: "go" } }],
  };
  const resultOf = (name: string) => ({ functionResponse: { name, response: {} } });
  const contents = [...say("Go").contents, history, { role: "user", parts: [resultOf("go"), resultOf("look")] }];
  expect((await generate({ contents, tools: [LOOK] }, "act")).status).toBe(200);
  const [, called, ...results] = sentBody().messages as { tool_calls?: { id: string }[]; tool_call_id?: string }[];
  expect(results.map((one) => one.tool_call_id)).toEqual(called?.tool_calls?.map(({ id }) => id).reverse());
  const refused = await generate({ contents: [...say("Go").contents, { role: "user", parts: [resultOf("look")] }] });
  expect(refused.body.error.details[0]?.metadata.param).toBe("contents[1].parts[0].functionResponse");
});

test("Images, files and schemas reach the upstream, and JSON names may be in snake case.", async () => {
  const inline_data = { mime_type: "image/png", data: PNG.replaceAll("+", "-").replaceAll("/", "_") };
  const pdf = { inlineData: { mimeType: "application/pdf", data: "JVBERi0=" } };
  const responseSchema = { type: "ARRAY", items: { type: "STRING", enum: ["a", "b"] }, minItems: "1" };
  const generation_config = { response_mime_type: "application/json", response_schema: responseSchema };
  const { status } = await generate({
    contents: { parts: [{ text: "Look" }, { inline_data }, pdf] },
    generation_config,
  });
  expect(status).toBe(200);
  const { messages, response_format } = sentBody();
  expect(messages).toMatchObject([
    {
      role: "user",
      content: [
        { type: "text", text: "Look" },
        { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } },
        { type: "file", file: { file_data: "data:application/pdf;base64,JVBERi0=" } },
      ],
    },
  ]);
  const schema = { type: "array", items: { type: "string", enum: ["a", "b"] }, minItems: 1 };
  expect(response_format).toMatchObject({ type: "json_schema", json_schema: { schema } });
});

test.each<[object, string, string]>([
  [{ contents: [] }, "invalid_value", "contents"],
  [{ contents: [{ role: "system", parts: [] }] }, "invalid_value", "contents[0].role"],
  [{ contents: [{ parts: [{}] }] }, "invalid_value", "contents[0].parts[0]"],
  [{ contents: [{ parts: [] }] }, "invalid_value", "contents[0].parts"],
  [{ contents: [{ parts: [{ executableCode: {} }] }] }, "unsupported_value", "contents.parts.executableCode"],
  [{ contents: { parts: { fileData: { fileUri: "gs://a" } } } }, "invalid_value", "contents[0].parts[0].fileData"],
  [{ ...say("a"), tools: [{ googleSearch: {} }] }, "unsupported_value", "tools.googleSearch"],
  [{ ...UNKNOWN, ...say("a"), cachedContent: "cachedContents/1" }, "unsupported_value", "cachedContent"],
  [configured({ candidateCount: 2 }), "invalid_value", "generationConfig.candidateCount"],
  [configured({ responseModalities: ["IMAGE"] }), "invalid_value", "generationConfig.responseModalities[0]"],
  [configured({ responseSchema: {} }), "invalid_value", "generationConfig.responseMimeType"],
  [configured({ temperature: 3 }), "decimal_above_max_value", "generationConfig.temperature"],
  [
    { ...say("a"), tools: [LOOK], toolConfig: { functionCallingConfig: { mode: "ANY", allowedFunctionNames: ["x"] } } },
    "invalid_value",
    "toolConfig.functionCallingConfig.allowedFunctionNames[0]",
  ],
  [{ ...say("long ".repeat(60_000)) }, "context_length_exceeded", "contents"],
])("A field that cannot be served is refused by name, in Google's form: %#.", async (asked, reason, param) => {
  const sent = upstream.requests.length;
  const { status, body } = await generate(asked);
  expect(status).toBe(400);
  expect(body.error).toMatchObject({
    code: 400,
    status: "INVALID_ARGUMENT",
    details: [{ reason, metadata: { param } }],
  });
  expect(upstream.requests).toHaveLength(sent);
});

test("The paths of Google's newer packages begin with /v1.", async () => {
  const answer = await send(service, "/v1/models/talk:generateContent", payer.token, say("Hello"));
  expect([answer.status, ((await answer.json()) as Generated).modelVersion]).toEqual([200, "talk"]);
  const refused = await send(service, "/v1/models/talk:generateContent", payer.token, {});
  expect(((await refused.json()) as Failed).error.status).toBe("INVALID_ARGUMENT");
});

test("Errors of every kind have Google's form.", async () => {
  const poor = await makeOrganization(service, "0");
  const failing = async (answer: Promise<Response>) => {
    const { status, body } = await answer.then(async (one) => ({
      status: one.status,
      body: (await one.json()) as Failed,
    }));
    return [status, body.error.code, body.error.status, body.error.details[0]?.reason];
  };
  const hello = say("Hello");
  expect(await failing(call("talk:generateContent", hello, null))).toEqual([
    401,
    401,
    "UNAUTHENTICATED",
    "missing_token",
  ]);
  expect(await failing(call("talk:generateContent", hello, poor.token))).toEqual([
    ...[402, 402, "FAILED_PRECONDITION", "insufficient_credits"],
  ]);
  expect(await failing(call("none:generateContent", hello))).toEqual([404, 404, "NOT_FOUND", "model_not_found"]);
  expect(await failing(call("talk:embedContent", hello))).toEqual([404, 404, "NOT_FOUND", "not_found"]);
  expect(await failing(send(service, "/v1beta/files", payer.token))).toEqual([404, 404, "NOT_FOUND", "not_found"]);
  const cut = await call("break:streamGenerateContent?alt=sse", hello);
  expect(
    eventsOf((await cut.text()).replaceAll("\r\n", "\n"))
      .map((one) => JSON.parse(one))
      .at(-1),
  ).toMatchObject({
    error: { code: 502, status: "UNAVAILABLE" },
  });
  const list = (await (await call("break:streamGenerateContent", hello)).json()) as object[];
  expect(list.at(-1)).toMatchObject({ error: { code: 502 } });
});

test("Tokens are counted, and models listed page by page.", async () => {
  const count = async (body: object) =>
    (await (await call("talk:countTokens", body)).json()) as { totalTokens: number };
  const { totalTokens } = await count(say("Hello"));
  expect(totalTokens).toBeGreaterThan(0);
  const whole = { model: "models/talk", ...say("Hello"), systemInstruction: { parts: [{ text: "long ".repeat(50) }] } };
  expect((await count({ generateContentRequest: whole })).totalTokens).toBeGreaterThan(totalTokens + 40);
  const list = async (query = "") => {
    const answer = await send(service, `/v1beta/models${query}`, payer.token);
    return (await answer.json()) as { models: { name: string }[]; nextPageToken?: string };
  };
  const all = (await list()).models.map(({ name }) => name);
  expect(all).toEqual(expect.arrayContaining(["models/talk", "models/sandbox/echo"]));
  const { models, nextPageToken } = await list("?pageSize=2");
  const rest = await list(`?pageSize=1000&pageToken=${nextPageToken}`);
  expect([...models, ...rest.models].map(({ name }) => name)).toEqual(all);
  expect(rest.nextPageToken).toBeUndefined();
  const named = { "x-goog-api-key": payer.token };
  const short = await send(service, "/v1/models", null, undefined, { headers: named });
  expect(((await short.json()) as typeof rest).models.map(({ name }) => name)).toEqual(all);
  expect((await send(service, "/v1/models/none", null, undefined, { headers: named })).status).toBe(404);
  for (const path of ["/v1beta/models/talk", "/v1/models/talk"]) {
    const one = await send(service, path, null, undefined, { headers: named });
    expect(await one.json()).toMatchObject(TALK);
  }
  const sandbox = await call("sandbox/echo:generateContent", say("Hello there"));
  expect(((await sandbox.json()) as Generated).candidates[0]?.content.parts).toEqual([{ text: "Hello there" }]);
});

test("A token in the query is refused by default, and with the setting it is taken and never logged.", async () => {
  const path = (key: string) => `/v1beta/models/talk:generateContent?key=${key}&alt=json`;
  const refused = await send(service, path(payer.token), null, say("Hello"));
  expect(refused.status).toBe(400);
  const text = await refused.text();
  expect(text).toContain("server.keyInQuery");
  expect([text, service.output()].filter((one) => one.includes(payer.token))).toEqual([]);
  const open = await startService({ config: { server: { keyInQuery: true }, log: { level: "debug" } } });
  try {
    const { token } = await makeOrganization(open, "10");
    const ask = (url: string) => send(open, url, null, say("Hello"));
    expect((await ask(`/v1beta/models/sandbox/echo:generateContent?alt=json&key=${token}`)).status).toBe(200);
    const events = await ask(`/v1beta/models/sandbox/echo:streamGenerateContent?key=${token}&alt=sse`);
    expect(events.headers.get("content-type")).toContain("text/event-stream");
    const wrong = await ask(`/v1beta/models/none:generateContent?key=${token}`);
    expect([wrong.status, await wrong.text()]).toEqual([404, expect.not.stringContaining(token)]);
    const both = await send(open, path(token), null, say("Hello"), { headers: { "x-goog-api-key": "another" } });
    expect([(await ask(`/v1/models?key=${token}`)).status, both.status]).toEqual([405, 400]);
    expect((await send(open, `/v1/models?key=${token}`, null)).status).toBe(401);
    for (const key of ["%", "%ff"]) expect((await send(open, `/v1beta/models?key=${key}`, null)).status).toBe(401);
    expect(open.output()).not.toContain(token);
  } finally {
    await open.end();
  }
});
