import fc from "fast-check";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { type Behaviour, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const PRICE = { input: 1, output: 1 };
const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
const COMPLETIONS = "/v1/chat/completions";
const ANNOTATION = { type: "url_citation", url_citation: { url: "https://a.example.com", title: "A" } };
const DETAIL = { type: "reasoning.text", format: "anthropic-claude-v1", text: "hm", signature: "SIG", index: 0 };
const WHOLE = { system_fingerprint: "fp_1", service_tier: "default", citations: ["https://a.example.com"] };

/** Answers with everything that an upstream can add. */
const adding: Behaviour = ({ body, response }) => {
  const more = {
    annotations: [ANNOTATION],
    images: [{ type: "image_url", image_url: { url: "data:," } }],
    mood: "good",
  };
  if (body.stream !== true) {
    const message = { role: "assistant", content: "hello", reasoning_details: [DETAIL], ...more };
    sendJson(response, 200, { ...WHOLE, choices: [{ index: 0, message, finish_reason: "stop", native: "x" }], usage });
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  const event = (delta: object, fields: object = {}) =>
    response.write(`data: ${JSON.stringify({ ...WHOLE, choices: [{ index: 0, delta, ...fields }] })}\n\n`);
  event({ role: "assistant", content: "" });
  event({ content: "hel" });
  event({ content: "lo", reasoning_details: [DETAIL] });
  event(more);
  event({}, { finish_reason: "stop", native: "x" });
  response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
};

let upstream: Upstream;
let service: RunningService;
let token: string;
const sentUpstream = (): Record<string, unknown> => upstream.requests.at(-1)?.body ?? {};
const ask = (fields: object) =>
  send(service, COMPLETIONS, token, { model: "m", messages: [{ role: "user", content: "go" }], ...fields });

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("m", adding);
  service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000 },
      providers: [upstream.provider],
      models: [{ id: "m", price: PRICE, contextWindow: 50_000, routes: [{ provider: "up", model: "m" }] }],
    },
  });
  ({ token } = await makeOrganization(service, "10"));
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

describe("An answer with everything that an upstream adds", () => {
  test("loses nothing, streamed and not.", async () => {
    const client = new OpenAI({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 });
    const asked = { model: "m", messages: [{ role: "user" as const, content: "go" }] };
    const whole = await client.chat.completions.create(asked);
    const expected = { annotations: [ANNOTATION], mood: "good", reasoning_details: [DETAIL], content: "hello" };
    expect(whole).toMatchObject(WHOLE);
    expect(whole.choices[0]).toMatchObject({ native: "x", message: expected });
    const chunks = [];
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) chunks.push(chunk);
    const deltas = chunks.map((chunk) => chunk.choices[0]?.delta ?? {});
    expect(Object.assign({}, ...chunks)).toMatchObject(WHOLE);
    expect(Object.assign({}, ...chunks.map(({ choices }) => choices[0]))).toMatchObject({ native: "x" });
    expect(Object.assign({}, ...deltas)).toMatchObject({ ...expected, content: "lo" });
    expect(deltas.map(({ content }) => content ?? "").join("")).toBe("hello");
  });

  test("is the same when it is sent again.", async () => {
    const body = { model: "m", messages: [{ role: "user", content: "go" }] };
    const headers = { "idempotency-key": "the-same" };
    const [first, again] = [
      await send(service, COMPLETIONS, token, body, { headers }),
      await send(service, COMPLETIONS, token, body, { headers }),
    ];
    expect(again.headers.get("x-tollgate-idempotent-replay")).toBe("true");
    expect(await again.json()).toEqual(await first.json());
  });
});

test("A field that the service does not know is named, and goes nowhere.", async () => {
  await fc.assert(
    fc.asyncProperty(fc.stringMatching(/^zz[a-z_]{1,20}$/), fc.json(), async (name, value) => {
      const response = await ask({ [name]: value, messages: [{ role: "user", content: "go", [name]: value }] });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-tollgate-ignored")?.split(", ")).toEqual([`messages.${name}`, name]);
      expect(JSON.stringify(sentUpstream())).not.toContain(name);
    }),
    { numRuns: 20 },
  );
});

test("The list of unknown fields is bounded, and has only characters of a header.", async () => {
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`zz${index}`, 1]));
  const listed = (await ask(many)).headers.get("x-tollgate-ignored")?.split(", ");
  expect(listed).toHaveLength(17);
  expect(listed?.at(-1)).toBe("...");
  const odd = (await ask({ [`z\r\n,é${"z".repeat(1_000)}`]: 1 })).headers.get("x-tollgate-ignored");
  expect(odd).toMatch(/^z____z{59}$/);
});

test("A hint is named, and a field that changes the answer is refused with its reason.", async () => {
  const hinted = await ask({ prediction: { type: "content", content: "x" }, prompt_cache_key: "k" });
  expect(hinted.headers.get("x-tollgate-ignored")).toBe("prediction");
  expect(sentUpstream()).not.toHaveProperty("prediction");
  expect(sentUpstream()).toMatchObject({ prompt_cache_key: "k" });
  const refused = await ask({ web_search_options: {} });
  expect(refused.status).toBe(400);
  expect(await refused.json()).toMatchObject({
    error: { code: "unsupported_value", param: "web_search_options", message: expect.stringContaining("search") },
  });
});

test("A custom tool goes to the upstream as it is, and so does its call.", async () => {
  const tool = { type: "custom", custom: { name: "sh", description: "Runs it." } };
  const call = { id: "a", type: "custom", custom: { name: "sh", input: "ls" } };
  const messages = [
    { role: "user", content: "go" },
    { role: "assistant", tool_calls: [call] },
    { role: "tool", tool_call_id: "a", content: "x" },
  ];
  const tool_choice = { type: "custom", custom: { name: "sh" } };
  expect((await ask({ messages, tools: [tool], tool_choice })).status).toBe(200);
  expect(sentUpstream()).toMatchObject({ tools: [tool], tool_choice });
  expect(sentUpstream().messages).toMatchObject([{}, { tool_calls: [call] }, {}]);
});

test("A hold for a file covers the model's context window.", async () => {
  const { token: poor } = await makeOrganization(service, "0.04");
  const file = { filename: "a.pdf", file_data: "data:application/pdf;base64,AAAA" };
  const messages = [{ role: "user", content: [{ type: "file", file }] }];
  const body = { model: "m", messages, max_tokens: 10 };
  const refused = await send(service, COMPLETIONS, poor, body);
  expect(refused.status).toBe(402);
  expect(await refused.json()).toMatchObject({ error: { credits_required: 0.05001 } });
  expect((await send(service, COMPLETIONS, token, body)).status).toBe(200);
  expect(sentUpstream().messages).toEqual(messages);
});
