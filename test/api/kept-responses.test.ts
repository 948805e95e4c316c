import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, type ModelMessage, stepCountIs, streamText, tool } from "ai";
import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { type JsonEvent, sse } from "../support/second-wire.ts";
import {
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startService,
} from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";
import { type ScriptedServer, startScriptedServer } from "../wires/scripted-server.ts";

const usage = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
const NATIVE_USAGE = { input_tokens: 9, output_tokens: 4, total_tokens: 13 };
const LONG = "long ".repeat(4_000);
const REASONING = { id: "rs_up", type: "reasoning", summary: [], encrypted_content: "gAAAAABn" };
const CALL = {
  id: "fc_up",
  type: "function_call",
  call_id: "call_up",
  name: "look",
  arguments: "{}",
  status: "completed",
};
const SAID = {
  id: "msg_up",
  type: "message",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text: "Done.", annotations: [] }],
};

interface Answered {
  status: number;
  body: {
    id: string;
    store: boolean;
    output: { id: string }[];
    error?: { code: string; param: string; message: string };
  };
}

describe.skipIf(!hasPostgres)("items of responses", () => {
  let database: TestDatabase;
  let upstream: Upstream;
  let native: ScriptedServer;
  const nodes: RunningService[] = [];
  let payer: Organization;

  beforeAll(async () => {
    [database, upstream, native] = [await createTestDatabase(), await startUpstream(), await startScriptedServer()];
    const price = { input: 1_000, output: 1_000 };
    const capabilities = ["chat", "streaming", "tools"];
    const config = {
      providers: [
        upstream.provider,
        { id: "openai", kind: "openai-compatible", baseUrl: "http://api.openai.com/v1", apiKey: "sk-ours" },
      ],
      models: [
        ...["talk", "act"].map((id) => ({ id, price, capabilities, routes: [{ provider: "up", model: id }] })),
        { id: "native", price, capabilities, routes: [{ provider: "openai", model: "gpt-5.3-codex" }] },
      ],
    };
    // The second upstream is the proxy of the service, because the Responses wire belongs to OpenAI's own address.
    const environment = { HTTP_PROXY: native.origin, NO_PROXY: "127.0.0.1" };
    for (let node = 0; node < 2; node += 1) {
      nodes.push(await startService({ config, environment, databaseUrl: database.url }));
    }
    upstream.behave("talk", answering({ words: ["Good ", "day."], usage }));
    upstream.behave("act", (request) => {
      const messages = request.body.messages as { role: string }[];
      if (messages.at(-1)?.role !== "user") return answering({ words: ["Done."], usage })(request);
      const call = { id: "call_1", type: "function", function: { name: "look", arguments: "{}" } };
      const delta = { role: "assistant", content: null, reasoning_content: "Hm.", tool_calls: [{ index: 0, ...call }] };
      if (request.body.stream !== true) {
        const message = { ...delta, tool_calls: [call] };
        return sendJson(request.response, 200, {
          choices: [{ index: 0, message, finish_reason: "tool_calls" }],
          usage,
        });
      }
      request.response.writeHead(200, { "content-type": "text/event-stream" });
      const choices = [{ index: 0, delta, finish_reason: "tool_calls" }];
      request.response.end(`data: ${JSON.stringify({ choices, usage })}\n\ndata: [DONE]\n\n`);
    });
  });
  beforeEach(async () => {
    payer = await makeOrganization(node(0), "1000");
  });
  afterAll(async () => {
    await Promise.all(nodes.map((one) => one.end()));
    await Promise.all([upstream?.close(), native?.end()]);
    await database?.drop();
  });

  function node(index: number): RunningService {
    const one = nodes[index % nodes.length];
    if (one === undefined) throw new Error("There is no node");
    return one;
  }
  const execute = async (sql: string) => {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    try {
      return (await client.query<Record<string, unknown>>(sql)).rows;
    } finally {
      await client.end();
    }
  };
  const create = async (fields: object, options: { at?: number; token?: string; headers?: object } = {}) => {
    const { at = 0, token = payer.token, headers = {} } = options;
    const body = { model: "talk", input: "Hello", ...fields };
    const answer = await send(node(at), "/v1/responses", token, body, { headers: { ...headers } });
    return { status: answer.status, body: await answer.json() } as Answered;
  };
  const sentMessages = () => upstream.requests.at(-1)?.body.messages;
  const referTo = ({ output }: Answered["body"]) => [
    { role: "user", content: "Hello" },
    { type: "item_reference", id: output[0]?.id },
    { role: "user", content: "And now?" },
  ];
  /** The statuses of a request that refers to an item, and of one that continues a response. */
  const statusesOf = async (made: Answered["body"], options: { at?: number; token?: string } = {}) => [
    (await create({ input: referTo(made) }, options)).status,
    (await create({ input: "And now?", previous_response_id: made.id }, options)).status,
  ];

  /** A model of the AI SDK with its default settings, whose requests go to the nodes in turn. */
  function sdkModel(id: string) {
    let sent = 0;
    const alternate: typeof fetch = (address, init) => {
      const { pathname } = new URL(String(address));
      sent += 1;
      return fetch(`${node(sent).url}${pathname}`, init);
    };
    return createOpenAI({ baseURL: node(0).baseUrl, apiKey: payer.token, fetch: alternate })(id);
  }
  const look = tool({ inputSchema: jsonSchema<object>({ type: "object" }), execute: async () => "seen" });
  const nativeEvents = (...items: { id: string }[]): JsonEvent[] => [
    { type: "response.created", response: { id: "resp_up", created_at: 1, model: "gpt" } },
    ...items.flatMap((item, output_index) => [
      { type: "response.output_item.added", output_index, item },
      ...(item.id.startsWith("msg")
        ? [{ type: "response.output_text.delta", output_index, item_id: item.id, delta: "Done." }]
        : []),
      { type: "response.output_item.done", output_index, item },
    ]),
    {
      type: "response.completed",
      response: { id: "resp_up", status: "completed", output: items, usage: NATIVE_USAGE },
    },
  ];

  describe.each(["act", "native"])("of the model %s", (model) => {
    const isNative = model === "native";
    const script = (isStreamed: boolean) => {
      native.reset();
      const turns = [
        [REASONING, CALL],
        [SAID],
        [
          { ...REASONING, id: "rs_2" },
          { ...SAID, id: "msg_2" },
        ],
      ];
      const whole = (output: object[]) =>
        JSON.stringify({ id: "resp_up", status: "completed", output, usage: NATIVE_USAGE });
      native.answer(
        ...turns.map((items) =>
          isStreamed
            ? { headers: { "content-type": "text/event-stream" }, body: sse(nativeEvents(...items)) }
            : { body: whole(items) },
        ),
      );
    };

    test.each([false, true])("The AI SDK finishes a tool loop and a second turn; streamed: %s.", async (isStreamed) => {
      script(isStreamed);
      const messages: ModelMessage[] = [{ role: "user", content: "Go" }];
      const asked = { model: sdkModel(model), tools: { look }, stopWhen: stepCountIs(3), maxRetries: 0 };
      const ask = async () => {
        if (!isStreamed) return generateText({ ...asked, messages });
        const stream = streamText({ ...asked, messages });
        await stream.consumeStream();
        return { text: await stream.text, responseMessages: await stream.responseMessages, steps: await stream.steps };
      };
      const first = await ask();
      expect([first.text, first.steps.length]).toEqual(["Done.", 2]);
      messages.push(...first.responseMessages, { role: "user", content: "Thanks" });
      expect((await ask()).text).toBe("Done.");
      if (!isNative) return;
      const items = native.requests.at(-1)?.body.input as { type: string; id?: string }[];
      const expected = ["message", "rs_up", "function_call", "function_call_output", "msg_up", "message"];
      expect(items.map(({ type, id }) => id ?? type)).toEqual(expected);
      expect(JSON.stringify(items)).toContain("gAAAAABn");
      expect(JSON.stringify(items)).not.toContain("item_reference");
    });
  });

  test("A response is continued on another node, and the charge counts what it continues.", async () => {
    const first = await create({ instructions: "Be kind." });
    expect(first).toMatchObject({ status: 200, body: { store: true } });
    const second = await create({ input: "And now?", previous_response_id: first.body.id }, { at: 1 });
    expect(second.status).toBe(200);
    const conversation = [
      { role: "user", content: "Hello" },
      { role: "assistant", content: [{ type: "text", text: "Good day." }] },
      { role: "user", content: "And now?" },
    ];
    expect(sentMessages()).toEqual(conversation);
    const third = await create({ input: "Go on", previous_response_id: second.body.id });
    expect(third.status).toBe(200);
    expect(sentMessages()).toEqual([...conversation, conversation[1], { role: "user", content: "Go on" }]);
    expect((await create({ input: referTo(first.body) }, { at: 1 })).status).toBe(200);
    expect(sentMessages()).toEqual(conversation);
  });

  test("What a request refers to counts in its hold.", async () => {
    const { body } = await create({ input: LONG });
    const headers = { "x-tollgate-max-cost": "1" };
    const bounds = { max_output_tokens: 16 };
    expect((await create({ ...bounds, input: "And now?" }, { headers })).status).toBe(200);
    const continued = await create({ ...bounds, input: "And now?", previous_response_id: body.id }, { headers });
    expect([continued.status, continued.body.error?.code]).toEqual([400, "max_cost_exceeded"]);
  });

  test("Items are those of one token and its successors; others get the answer of an unknown id.", async () => {
    const { body } = await create({});
    const { token: neighbour } = await makeToken(node(0), payer.id);
    const stranger = await makeOrganization(node(0), "10");
    const unknown = { id: `resp_${"0".repeat(32)}`, output: [{ id: `msg_${"0".repeat(36)}` }], store: true };
    for (const fields of [{ input: referTo(body) }, { previous_response_id: body.id }]) {
      const other = "input" in fields ? { input: referTo(unknown) } : { previous_response_id: unknown.id };
      const expected = await create(other);
      expect(expected.status).toBe(400);
      const code = "input" in fields ? "invalid_value" : "previous_response_not_found";
      expect(expected.body.error?.code).toBe(code);
      for (const token of [neighbour, stranger.token]) expect(await create(fields, { token })).toEqual(expected);
    }
    const path = `/admin/v1/tokens/${payer.tokenId}/rotate`;
    const { headers } = operator(node(0));
    const rotated = await send(node(0), path, null, { overlap_seconds: 3600 }, { headers: { ...headers } });
    const { secret } = (await rotated.json()) as { secret: string };
    expect(await statusesOf(body, { at: 1, token: secret })).toEqual([200, 200]);
    const made = await create({}, { token: secret });
    expect(await statusesOf(made.body)).toEqual([200, 200]);
  });

  test("Nothing is kept of a request with store set to false.", async () => {
    const { body } = await create({ store: false });
    expect(body.store).toBe(false);
    expect(await statusesOf(body)).toEqual([400, 400]);
    expect(await execute(`SELECT id FROM response_item WHERE organization_id = '${payer.id}'`)).toEqual([]);
  });

  test("An item is taken once, however often a request refers to it.", async () => {
    const { body } = await create({});
    const [user, reference] = referTo(body);
    const { status, body: refused } = await create({ input: [user, reference, reference] });
    expect([status, refused.error?.param]).toEqual([400, "input[2].id"]);
  });

  test("The switch of an organization ends and begins it on every node, and commands show it.", async () => {
    const { body } = await create({});
    const storage = (...words: string[]) => node(0).tollgate("org", "storage", payer.id, ...words, "--json");
    expect(await storage("--responses", "off")).toMatchObject({ keepsResponses: false, keepsConversations: false });
    await expect.poll(() => statusesOf(body, { at: 1 })).toEqual([400, 400]);
    const { body: late } = await create({}, { at: 1 });
    expect(late.store).toBe(false);
    const turned = await operator(node(0)).call("PATCH", `/organizations/${payer.id}`, { keeps_responses: true });
    expect(turned.body.keeps_responses).toBe(true);
    await expect.poll(() => statusesOf(body)).toEqual([200, 200]);
    expect(await statusesOf(late)).toEqual([400, 400]);
    expect(await storage()).toMatchObject({ keepsResponses: true });
  });

  test("Items are deleted with their response, and with the conversations of the organization.", async () => {
    const [{ body: one }, { body: other }] = [await create({}), await create({})];
    const remove = (token: string) => send(node(1), `/v1/responses/${one.id}`, token, undefined, { method: "DELETE" });
    const { token: neighbour } = await makeToken(node(0), payer.id);
    expect((await remove(neighbour)).status).toBe(404);
    const read = (token: string) => send(node(1), `/v1/responses/${one.id}`, token);
    expect((await read(neighbour)).status).toBe(404);
    expect(await (await read(payer.token)).json()).toEqual(one);
    expect(await statusesOf(one)).toEqual([200, 200]);
    expect(await (await remove(payer.token)).json()).toEqual({ id: one.id, object: "response", deleted: true });
    expect(await statusesOf(one)).toEqual([400, 400]);
    expect([(await read(payer.token)).status, (await remove(payer.token)).status]).toEqual([404, 404]);
    expect(await statusesOf(other)).toEqual([200, 200]);
    await operator(node(0)).call("DELETE", `/organizations/${payer.id}/conversations`);
    expect(await execute(`SELECT id FROM response_item WHERE organization_id = '${payer.id}'`)).toEqual([]);
    expect(await statusesOf(other)).toEqual([400, 400]);
  });

  test("A deletion can be repeated after a failure.", async () => {
    const admin = operator(node(0));
    await admin.call("PATCH", `/organizations/${payer.id}`, { keeps_conversations: true });
    const stored = () => execute(`SELECT hold_id FROM conversation WHERE organization_id = '${payer.id}'`);
    // Requests learn of the setting a moment later.
    await expect.poll(async () => (await create({})) && (await stored()).length).toBeGreaterThan(0);
    const { body } = await create({});
    const requestId = body.id.replace(/^resp_(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    const show = async () => (await admin.call("GET", `/requests/${requestId}/conversation`)).status;
    await expect.poll(show).toBe(200);
    // As clients do that state the type of their bodies in every request.
    const headers = { "content-type": "application/json" };
    const remove = () =>
      send(node(0), `/v1/responses/${body.id}`, payer.token, undefined, { method: "DELETE", headers });
    await execute("ALTER TABLE conversation RENAME TO conversation_away");
    expect((await remove()).status).toBeGreaterThanOrEqual(500);
    await execute("ALTER TABLE conversation_away RENAME TO conversation");
    expect((await remove()).status).toBe(200);
    expect(await show()).toBe(404);
  });

  test("Items that are older than the setting count as absent.", async () => {
    const { body } = await create({});
    const ageMs = 24 * 3_600_000;
    await execute(`UPDATE response_item SET kept_at = kept_at - ${ageMs} WHERE organization_id = '${payer.id}'`);
    expect(await statusesOf(body)).toEqual([400, 400]);
    await operator(node(0)).call("PATCH", `/organizations/${payer.id}`, { keeps_conversations: true });
    await expect.poll(() => statusesOf(body)).toEqual([200, 200]);
  });

  test.each([false, true])(
    "An answer is paid for and sent if its items cannot be kept; streamed: %s.",
    async (stream) => {
      await execute("ALTER TABLE response_item RENAME TO response_item_away");
      try {
        const answer = await send(node(0), "/v1/responses", payer.token, { model: "talk", input: "Hello", stream });
        expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining("Good day.")]);
      } finally {
        await execute("ALTER TABLE response_item_away RENAME TO response_item");
      }
      expect((await settledUsage(node(0), payer.token)).creditsUsed).toBe(0.01);
      expect(node(0).output()).toContain("items of a response could not be kept");
    },
  );
});

test("With responses.keepHours: 0, nothing is kept.", async () => {
  const service = await startService({ config: { responses: { keepHours: 0 } } });
  try {
    const { token } = await makeOrganization(service, "10");
    const ask = async (fields: object) =>
      send(service, "/v1/responses", token, { model: "sandbox/echo", input: "Hello", ...fields });
    const made = (await (await ask({})).json()) as Answered["body"];
    expect(made.store).toBe(false);
    const refused = await ask({ previous_response_id: made.id });
    expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining("keeps_responses")]);
  } finally {
    await service.end();
  }
});
