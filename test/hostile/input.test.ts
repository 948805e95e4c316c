import { request as httpRequest } from "node:http";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countOf, seedOfRun, timeoutOf } from "../support/counts.ts";
import {
  eventsOf,
  makeOrganization,
  type Organization,
  type RunningService,
  startService,
  usageOf,
} from "../support/service.ts";
import { expectEnvelope } from "./envelope.ts";

const COMPLETIONS = "/v1/chat/completions";
const BODIES = countOf("bodies");
const AT_ONCE = 20;
const HANG_MS = 120_000;
const MEBIBYTE = 1024 * 1024;

let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  const limits = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 1000 };
  service = await startService({ config: { limits } });
  organization = await makeOrganization(service, "1000000");
});

afterAll(async () => {
  await service?.end();
});

const creditsUsed = async () => {
  const { creditsUsed, creditsHeld } = await usageOf(service, organization.token);
  expect(creditsHeld).toBe(0);
  return Math.round(creditsUsed * 1e6);
};
const post = (body: string | Uint8Array, headers: Record<string, string> = {}) =>
  fetch(`${service.url}${COMPLETIONS}`, {
    method: "POST",
    headers: { authorization: `Bearer ${organization.token}`, "content-type": "application/json", ...headers },
    body: body as string,
    signal: AbortSignal.timeout(HANG_MS),
  });

/** Returns the charge of a response in micro-credits. Fails if it is neither a completion nor a 4xx. */
async function costOf(answer: Response): Promise<number> {
  const text = await answer.text();
  if (answer.status !== 200) {
    expectEnvelope(answer.status, text);
    expect(answer.status).toBeLessThan(500);
    return 0;
  }
  if (answer.headers.get("content-type")?.includes("event-stream")) {
    const events = eventsOf(text);
    expect(events.pop()).toBe("[DONE]");
    const usages = events.map((event) => (JSON.parse(event) as { usage?: { cost: number } | null }).usage);
    return Math.round((usages.findLast((usage) => usage)?.cost ?? Number.NaN) * 1e6);
  }
  const { object, usage } = JSON.parse(text) as { object: string; usage: { cost: number } };
  expect(object).toBe("chat.completion");
  expect(Number(answer.headers.get("x-credits-charged"))).toBe(usage.cost);
  return Math.round(usage.cost * 1e6);
}

/** Numbers that JavaScript values cannot produce; marked, and unmarked in the text. */
const literal = (text: string) => `@@${text}@@`;
const unmarked = (text: string) => text.replaceAll(/"@@(.*?)@@"/g, "$1");
const nested = (depth: number, open: string, close: string) => literal(open.repeat(depth) + close.repeat(depth));

const strangeText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.constantFrom("", "\0", "\ud800", "\udfff\ud800", "\r\nx-evil: 1", "__proto__", "constructor", "../../etc/passwd"),
  fc.constantFrom("%00", "%2e%2e", "\u202e", "\u001b[31m", "sandbox/echo\0", "a".repeat(10_000), "NaN", "null"),
);
const strangeNumber = fc.oneof(
  fc.double(),
  fc.integer(),
  fc.constantFrom("1e309", "-1e309", "-0", "0.1e1", "1E400", "9007199254740993", "1e-400", "-1", "4097").map(literal),
);
const strange = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  strangeText,
  strangeNumber,
  fc.constantFrom(nested(100, "[", "]"), nested(300, "[", "]"), literal(`${'{"a":'.repeat(100)}1${"}".repeat(100)}`)),
  fc.constantFrom<unknown>(null, true, [], {}, [[]], [null], { type: "function" }, { type: "text" }),
);

const content = fc.oneof(
  { weight: 4, arbitrary: fc.string({ unit: "grapheme", maxLength: 60 }) },
  strangeText,
  fc.array(fc.record({ type: fc.constantFrom("text", "image_url"), text: strangeText })),
);
const message = fc.record(
  {
    role: fc.constantFrom("user", "user", "system", "developer", "assistant", "tool"),
    content,
    name: strangeText,
    tool_call_id: strangeText,
    tool_calls: fc.array(
      fc.record({
        id: strangeText,
        type: fc.constant("function"),
        function: fc.record({ name: strangeText, arguments: strangeText }),
        extra_content: strange,
      }),
      { maxLength: 2 },
    ),
  },
  { requiredKeys: ["role", "content"] },
);
const tool = fc.record({
  type: fc.constant("function"),
  function: fc.record({ name: strangeText, parameters: fc.dictionary(strangeText, strange), description: strangeText }),
});
const request = fc.record(
  {
    model: fc.constantFrom("sandbox/echo", "sandbox/story"),
    messages: fc.array(message, { minLength: 1, maxLength: 4 }),
    max_tokens: fc.integer({ min: 1, max: 200 }),
    temperature: fc.double({ min: 0, max: 1, noNaN: true }),
    stream: fc.boolean(),
    stream_options: fc.record({ include_usage: fc.boolean() }),
    instructions: strangeText,
    stop: fc.oneof(strangeText, fc.array(strangeText, { maxLength: 4 })),
    seed: fc.integer(),
    tools: fc.array(tool, { maxLength: 2 }),
    tool_choice: fc.constantFrom("none", "auto", "required"),
    response_format: fc.oneof(
      fc.constant({ type: "json_object" }),
      fc.record({
        type: fc.constant("json_schema"),
        json_schema: fc.record({ name: strangeText, schema: fc.dictionary(strangeText, strange) }),
      }),
    ),
    logit_bias: fc.dictionary(strangeText, fc.integer({ min: -100, max: 100 }), { maxKeys: 3 }),
    user: strangeText,
    metadata: fc.dictionary(strangeText, strangeText, { maxKeys: 3 }),
  },
  { requiredKeys: ["model", "messages", "max_tokens"] },
);

type Json = Record<string, unknown>;

/** Puts a strange value anywhere into a body: `steps` choose the way down. */
function mutated(body: unknown, steps: readonly number[], value: unknown): unknown {
  const [step, ...rest] = steps;
  if (step === undefined || typeof body !== "object" || body === null) return value;
  const keys = Object.keys(body);
  const key = keys[step % (keys.length + 1)] ?? "unknown";
  const inner = mutated((body as Json)[key], rest, value);
  if (Array.isArray(body)) return Object.assign([...body], { [step % (keys.length + 1)]: inner });
  return { ...body, [key]: inner };
}

const mutation = fc.record({ steps: fc.array(fc.nat(50), { minLength: 1, maxLength: 5 }), value: strange });
const cut = fc.record({
  at: fc.nat(400),
  length: fc.nat(4),
  with: fc.constantFrom("", "{", "}", '"', ",", "\\", "\0"),
});
const bodies = fc.oneof(
  { weight: 8, arbitrary: request.map((body) => JSON.stringify(body)) },
  {
    weight: 8,
    arbitrary: fc
      .tuple(request, fc.array(mutation, { minLength: 1, maxLength: 3 }))
      .map(([body, all]) =>
        JSON.stringify(all.reduce<unknown>((one, { steps, value }) => mutated(one, steps, value), body)),
      ),
  },
  { weight: 2, arbitrary: strange.map((value) => JSON.stringify(value) ?? "") },
  {
    weight: 2,
    arbitrary: fc.tuple(request, cut).map(([body, { at, length, with: piece }]) => {
      const text = JSON.stringify(body);
      return text.slice(0, at) + piece + text.slice(at + length);
    }),
  },
);

test(
  `${BODIES} generated bodies get a response or the error envelope, never a 5xx, and the charges match.`,
  async () => {
    const before = await creditsUsed();
    let charged = 0;
    const statuses = new Map<number, number>();
    await fc.assert(
      fc.asyncProperty(fc.array(bodies, { minLength: AT_ONCE, maxLength: AT_ONCE }), async (batch) => {
        const costs = batch.map(async (body) => {
          const answer = await post(unmarked(body));
          statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
          const cost = await costOf(answer);
          charged += cost;
        });
        await Promise.all(costs);
      }),
      { numRuns: BODIES / AT_ONCE, seed: seedOfRun() },
    );
    expect(await creditsUsed()).toBe(before + charged);
    // Enough of the requests must succeed for the test to mean something.
    expect(statuses.get(200)).toBeGreaterThan(BODIES / 50);
    expect(statuses.get(400)).toBeGreaterThan(BODIES / 5);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  },
  timeoutOf("bodies"),
);

const hello = '{"role":"user","content":"hello"}';
const bodyWith = (fields: string, messages = hello) => `{"model":"sandbox/echo","messages":[${messages}]${fields}}`;
const deep = (depth: number) => `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`;
const keys = (count: number) => Array.from({ length: count }, (_, index) => `"k${index}":1`).join(",");
const schema = (text: string) =>
  bodyWith(`,"response_format":{"type":"json_schema","json_schema":{"name":"f","schema":${text}}}`);
const list = (from: number, count: number) => JSON.stringify(Array.from({ length: count }, (_, index) => from + index));

describe("Unusual bodies", () => {
  const cases: [name: string, body: () => string | Uint8Array, status: number, code?: string][] = [
    ["empty", () => "", 400, "invalid_json"],
    ["a byte order mark", () => `\ufeff${bodyWith("")}`, 400, "invalid_json"],
    ["invalid UTF-8", () => Buffer.concat([Buffer.from(bodyWith("").slice(0, -1)), Buffer.from([0xff, 0x7d])]), 400],
    ["an overlong form in UTF-8", () => Buffer.from(bodyWith("").replace("hello", "\xc0\xaf"), "latin1"), 400],
    ["UTF-16", () => Buffer.from(bodyWith(""), "utf16le"), 400, "invalid_json"],
    ["NaN", () => bodyWith(',"temperature":NaN'), 400, "invalid_json"],
    ["a comment", () => `${bodyWith("")}// done`, 400, "invalid_json"],
    ["a list", () => `[${bodyWith("")}]`, 400, "invalid_type"],
    ["128 levels in an unknown field", () => bodyWith(`,"x":${deep(127)}`), 200],
    ["129 levels in an unknown field", () => bodyWith(`,"x":${deep(128)}`), 413, "body_too_large"],
    [
      "128 levels in an unknown field of a part",
      () => bodyWith("", `{"role":"user","content":[{"type":"text","text":"a","x":${deep(123)}}]}`),
      200,
    ],
    ["128 levels as the model", () => `{"model":${deep(127)},"messages":[${hello}]}`, 400, "invalid_type"],
    ["100,000 levels as the model", () => `{"model":${deep(100_000)},"messages":[${hello}]}`, 413, "body_too_large"],
    [
      "1,000,000 levels in a tool",
      () => bodyWith(`,"tools":[{"type":"function","function":{"name":"f","parameters":${deep(1_000_000)}}}]`),
      413,
      "body_too_large",
    ],
    ["1,000,000 levels in a schema", () => schema(deep(1_000_000)), 413, "body_too_large"],
    ["1,000,000 brackets", () => "[".repeat(1_000_000), 413, "body_too_large"],
    ["90,000 keys", () => `{${keys(90_000)}}`, 400, "missing_required_parameter"],
    ["1,000,000 keys", () => `{${keys(1_000_000)}}`, 413, "body_too_large"],
    ["90,000 keys of a message", () => bodyWith("", `{"role":"user","content":"a",${keys(90_000)}}`), 200],
    ["90,000 keys of metadata", () => bodyWith(`,"metadata":{${keys(90_000)}}`), 400, "invalid_value"],
    ["a key twice", () => `{"model":"no-such-model",${bodyWith("").slice(1)}`, 200],
    ["__proto__", () => bodyWith(',"__proto__":{"stream":true,"model":"x"},"constructor":{"prototype":{"n":2}}'), 200],
    ["__proto__ as a model", () => bodyWith("").replace("sandbox/echo", "__proto__"), 404, "model_not_found"],
    ["constructor as a role", () => bodyWith("").replace('"user"', '"constructor"'), 400, "invalid_value"],
    ["lone surrogates", () => bodyWith("").replace("hello", "\\ud800 \\udfff"), 200],
    ["line breaks in a model", () => bodyWith("").replace("sandbox/echo", "a\\r\\nx-evil: 1\\u0000"), 404],
    [
      "line breaks in a tool",
      () => bodyWith(',"tools":[{"type":"function","function":{"name":"a\\r\\nx-evil: 1"}}]'),
      200,
    ],
    ["line breaks in hints", () => bodyWith(',"user":"a\\r\\nx-evil: 1","metadata":{"\\r\\nx-evil":"\\u0000"}'), 200],
    ["a model of 1 MiB", () => bodyWith("").replace("sandbox/echo", "a".repeat(MEBIBYTE)), 404, "model_not_found"],
    ["minus zero", () => bodyWith(',"temperature":-0,"seed":-0'), 200],
    ["minus zero tokens", () => bodyWith(',"max_tokens":-0'), 400, "invalid_value"],
    ["1e309", () => bodyWith(',"temperature":1e309'), 400, "invalid_type"],
    ["1e309 as a seed", () => bodyWith(',"seed":-1e309'), 400, "invalid_type"],
    ["1e308 tokens", () => bodyWith(',"max_tokens":1e308'), 400, "invalid_value"],
    ["5,000 messages", () => bodyWith("", `${`{"role":"user","content":""},`.repeat(4_999)}${hello}`), 200],
    ["10,000 messages of a wrong type", () => bodyWith("", `${"1,".repeat(9_999)}2`), 400, "invalid_type"],
    ["10,001 messages", () => bodyWith("", `${"1,".repeat(10_000)}2`), 413, "body_too_large"],
    ["1,024 tools of a wrong type", () => bodyWith(`,"tools":[${"1,".repeat(1_023)}2]`), 400, "invalid_type"],
    ["1,025 tools", () => bodyWith(`,"tools":[${"1,".repeat(1_024)}2]`), 413, "body_too_large"],
    ["two long enumerations", () => schema(`{"allOf":[{"enum":${list(0, 9000)}},{"enum":${list(9000, 9000)}}]}`), 400],
    [
      "long required lists, again and again",
      () => schema(`{"$defs":{"a":{"required":${list(0, 9000)}}},"allOf":[${'{"$ref":"#/$defs/a"},'.repeat(900)}{}]}`),
      400,
    ],
    [
      "texts grown step by step",
      () => schema('{"type":"array","minItems":50,"items":{"type":"string","minLength":9999}}'),
      400,
    ],
    [
      "many long texts",
      () => schema('{"type":"array","minItems":9990,"items":{"type":"string","minLength":10000}}'),
      400,
    ],
    ["a billion properties", () => schema('{"type":"object","minProperties":1e9}'), 400],
    [
      "a pattern that backtracks",
      () => schema('{"type":"string","pattern":"^(a+)+$","minLength":40}'),
      400,
      "unsupported_value",
    ],
  ];
  test.each(cases)("%s", async (_name, body, status, code) => {
    const before = await creditsUsed();
    const answer = await post(body());
    expect([...answer.headers.keys()]).not.toContain("x-evil");
    const copy = answer.clone();
    const cost = await costOf(answer);
    expect(answer.status).toBe(status);
    if (code !== undefined) expect(await copy.json()).toMatchObject({ error: { code } });
    expect(await creditsUsed()).toBe(before + cost);
  });

  test("The last of two equal keys counts everywhere.", async () => {
    const answer = await post(`{"max_tokens":9999,${bodyWith(',"max_tokens":1').slice(1)}`);
    expect(answer.status).toBe(200);
  });

  test.each([
    ["no content type", { "content-type": "" }],
    ["another content type", { "content-type": "application/x-www-form-urlencoded" }],
    ["a content type that is none", { "content-type": ";;;" }],
    ["gzip", { "content-encoding": "gzip" }],
    ["a chain of encodings", { "content-encoding": "identity, br" }],
  ])("A body with %s is rejected with 415.", async (_name, headers) => {
    const answer = await post(bodyWith(""), headers);
    expect(expectEnvelope(answer.status, await answer.text())).toBe("unsupported_media_type");
  });
});

describe("Bodies that are too large", () => {
  test.each([
    [21, false],
    [21, true],
    [100, false],
    [100, true],
  ])("A body of %i MiB is rejected, chunked: %s.", async (mebibytes, isChunked) => {
    const headers: Record<string, string> = isChunked ? {} : { "content-length": String(mebibytes * MEBIBYTE) };
    const answered = upload(`Bearer ${organization.token}`, headers, mebibytes);
    expect(expectEnvelope(...(await answered))).toBe("body_too_large");
  });

  test("A body without authentication or to an unknown path is rejected before it is read.", async () => {
    expect(expectEnvelope(...(await upload("Bearer none", {}, 100)))).toBe("invalid_token");
    expect(expectEnvelope(...(await upload("Bearer none", {}, 100, "/v1/nowhere")))).toBe("not_found");
  });
});

/** Sends a body of this size, as far as it is accepted. Returns the status and text of the response. */
function upload(authorization: string, headers: Record<string, string>, mebibytes: number, path = COMPLETIONS) {
  return new Promise<[number, string]>((resolve, reject) => {
    const outgoing = httpRequest(`${service.url}${path}`, {
      method: "POST",
      agent: false,
      headers: { authorization, "content-type": "application/json", ...headers },
    });
    let isAnswered = false;
    outgoing.on("error", reject);
    outgoing.on("response", async (answer) => {
      isAnswered = true;
      let text = "";
      for await (const data of answer) text += data;
      resolve([answer.statusCode ?? 0, text]);
    });
    const piece = Buffer.alloc(MEBIBYTE, " ");
    let sent = 0;
    const next = () => {
      if (sent === mebibytes) return outgoing.end();
      sent += 1;
      outgoing.write(piece, () => setImmediate(next));
      return isAnswered;
    };
    next();
  });
}

test("Afterwards the service is ready, and has logged no defect.", async () => {
  expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
  expect(service.output()).not.toMatch(/"level":"(error|fatal)"/);
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});
