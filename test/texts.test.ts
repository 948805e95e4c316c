import type { Command } from "commander";
import { type TSchema, Type } from "typebox";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventText } from "../src/admin/event-texts.ts";
import { EVENT_KINDS, type EventKind } from "../src/api/admin/event-kinds.ts";
import { decodeChatCompletion } from "../src/api/chat/decode.ts";
import { MESSAGES_MAX, TOOLS_MAX } from "../src/api/chat/request.ts";
import { compileCheck } from "../src/api/validation.ts";
import { createProgram } from "../src/cli/program.ts";
import { errorCatalog, invalidCursor } from "../src/errors.ts";
import type { Server } from "../src/http/server.ts";
import { issueIn } from "./support/issue.ts";
import { startTestServer } from "./support/server.ts";

/**
 * Collects the texts that users see into one file, so that the wording is reviewed as a whole. After a change of a text,
 * run `vitest run test/texts.test.ts --update` and read the difference.
 */
test("The texts that users see are those of the reviewed file.", async () => {
  const sections = [
    section("Errors: code, status, type, default message", catalogLines()),
    section("Validation of fields", schemaLines()),
    section("Validation of completion requests", requestLines()),
    section("Requests that no operation handles", await protocolLines()),
    section("Warnings, in Slack and by mail", warningLines()),
    ...helpSections(),
  ];
  await expect(`${sections.join("\n\n\n")}\n`).toMatchFileSnapshot("texts.txt");
});

let server: Server;
let url: string;
beforeAll(async () => {
  ({ server, url } = await startTestServer());
});
afterAll(() => server.close({ delayMs: 0, drainMs: 0 }));

function section(title: string, lines: readonly string[]): string {
  return [title, "=".repeat(title.length), "", ...lines].join("\n");
}

function catalogLines(): string[] {
  const lines = Object.entries(errorCatalog).map(
    ([code, { status, type, message }]) => `${code} (${status}, ${type})\n    ${message}`,
  );
  return [...lines, `invalid_value, for an invalid cursor\n    ${invalidCursor().message}`];
}

/** Fields of all kinds of events. */
const WARNED = {
  ...{ credits_left: 19.5, percent: 20, threshold: 20, last_top_up: 100, shortfall: 0.5, name: "Team", value: "ada" },
  ...{ spent: 8, limit: 10, resets_at: "2026-12-01T00:00:00.000Z", days_left: 6.5, hour: "2026-11-20T11:00:00.000Z" },
  ...{ usual: 1, token_id: "tok_1", expires_at: "2026-12-01T00:00:00.000Z", model: "m", date: "2026-12-01" },
  ...{
    replacement: "n",
    route: "p/m",
    node: "a",
    entries: 2,
    reason: "No space left.",
    amount: 20,
    note: "For the demo",
    requested_by: "Ada",
    payment_id: "pi_1",
    credits: 12,
    month: "2026-11",
    last_result: "HTTP 503",
    currency: "eur",
    ...{ charged_this_month: 20, monthly_maximum: 30 },
  },
  ...{ prices: { input: 1, output: 2 }, new_prices: { input: 1.5, output: 2 } },
};

function warningLines(): string[] {
  const textOf = (kind: EventKind, data: object) => {
    const event = { key: "", kind, organizationId: null, madeAtMs: 0, isRouted: false, data: { ...WARNED, ...data } };
    return `${kind}\n    ${eventText(event, "Acme")}`;
  };
  const others = [
    textOf("budget.used", { value: null, resets_at: null }),
    ...[8, 10].map((spent) => textOf("budget.used", { percent: 100, spent })),
    ...[0.5, 0].map((credits_left) => textOf("credits.low", { percent: 0, credits_left })),
  ];
  const onlyTiers = textOf("price.change", { new_prices: { input: 1, output: 2, tiers: [] } });
  return [
    ...EVENT_KINDS.map((kind) => textOf(kind, {})),
    textOf("credits.low", { percent: null }),
    ...others,
    onlyTiers,
  ];
}

/** One value for each kind of problem that a schema can find. */
const INVALID_FIELDS: [schema: TSchema, value: unknown][] = [
  [Type.Object({ name: Type.String() }), {}],
  [Type.Object({ name: Type.String() }, { additionalProperties: false }), { name: "a", size: 1 }],
  [Type.Object({}, { additionalProperties: false }), { size: 1 }],
  [Type.Object({ name: Type.String() }), "text"],
  [Type.Object({ name: Type.String() }), { name: 1 }],
  [Type.Object({ name: Type.String() }), { name: 1.5 }],
  [Type.Object({ name: Type.String() }), { name: null }],
  [Type.Object({ count: Type.Integer() }), { count: "1" }],
  [Type.Object({ count: Type.Integer() }), { count: Number.POSITIVE_INFINITY }],
  [Type.Object({ stop: Type.Union([Type.String(), Type.Array(Type.String())]) }), { stop: true }],
  [Type.Object({ role: Type.Enum(["user", "assistant", "tool"]) }), { role: "robot" }],
  [Type.Object({ role: Type.Enum(["user", "assistant"]) }), { role: 1 }],
  [Type.Object({ object: Type.Literal("model") }), { object: "list" }],
  [Type.Object({ count: Type.Integer({ minimum: 1 }) }), { count: 0 }],
  [Type.Object({ count: Type.Integer({ maximum: 9 }) }), { count: 10 }],
  [Type.Object({ share: Type.Number({ minimum: 0 }) }), { share: -0.5 }],
  [Type.Object({ share: Type.Number({ maximum: 1 }) }), { share: 1.5 }],
  [Type.Object({ amount: Type.Number({ exclusiveMinimum: 0 }) }), { amount: 0 }],
  [Type.Object({ names: Type.Array(Type.String(), { minItems: 1 }) }), { names: [] }],
  [Type.Object({ names: Type.Array(Type.String(), { maxItems: 2 }) }), { names: ["a", "b", "c"] }],
  [Type.Object({ name: Type.String({ minLength: 1 }) }), { name: "" }],
  [Type.Object({ name: Type.String({ maxLength: 3 }) }), { name: "long" }],
  [Type.Object({ day: Type.String({ pattern: "^\\d+$", description: "A day, YYYY-MM-DD." }) }), { day: "today" }],
  [Type.Object({ limits: Type.Object({}, { minProperties: 1 }) }), { limits: {} }],
  [Type.Object({ metadata: Type.Object({}, { maxProperties: 1 }) }), { metadata: { a: 1, b: 2 } }],
];

function schemaLines(): string[] {
  return INVALID_FIELDS.map(([schema, value]) => {
    const issue = compileCheck(schema)(value);
    return `${issue?.code}\n    ${issue?.message}`;
  });
}

const message = { role: "user", content: "hello" };
const part = (one: object) => ({ messages: [{ role: "user", content: [one] }] });
const image = (url: string) => ({ messages: [{ role: "user", content: [{ type: "image_url", image_url: { url } }] }] });
const INVALID_REQUESTS: unknown[] = [
  [],
  { messages: Array(MESSAGES_MAX + 1).fill(message) },
  { messages: [message], tools: Array(TOOLS_MAX + 1).fill(null) },
  { messages: [{ role: "user", content: [{ type: "sound" }] }] },
  { messages: [{ role: "user", content: [{}] }] },
  { messages: [{ role: "user" }] },
  { messages: [{ role: "tool", content: "result" }] },
  { messages: [message], metadata: { ["k".repeat(65)]: "a" } },
  { messages: [message], max_tokens: 1, max_completion_tokens: 1 },
  { messages: [message], n: 9 },
  { messages: [message], tool_choice: "required" },
  {
    messages: [message],
    tools: [{ type: "function", function: { name: "f" } }],
    tool_choice: { type: "function", function: { name: "g" } },
  },
  image("nowhere"),
  image("http://a.example.com/b.png"),
  image("https://user:secret@a.example.com/b.png"),
  image("https://a.example.com:8443/b.png"),
  image("https://127.0.0.1/b.png"),
  image(`https://a.example.com/${"b".repeat(8_192)}`),
  image("data:image/svg+xml;base64,AAAA"),
  image("data:image/png;base64,?"),
  part({ type: "file", file: { file_id: "file-1" } }),
  part({ type: "file", file: {} }),
  part({ type: "file", file: { file_data: "data:application/pdf;base64,?" } }),
  part({ type: "input_audio", input_audio: { data: "?", format: "wav" } }),
  part({ type: "input_audio", input_audio: { data: "AAAA", format: "?" } }),
  part({ type: "video_url", video_url: { url: "data:video/mp4;base64,?" } }),
  { messages: [message], functions: [{ name: "f" }], tools: [] },
  { messages: [message], function_call: "auto", tool_choice: "auto" },
];

function requestLines(): string[] {
  return INVALID_REQUESTS.map((body) => {
    const issue = issueIn(() => decodeChatCompletion(Array.isArray(body) ? body : { model: "m", ...(body as object) }));
    if (issue === undefined) throw new Error("The request is valid");
    return `${issue.code}\n    ${issue.message}`;
  });
}

async function protocolLines(): Promise<string[]> {
  const authorized = { authorization: "Bearer any", "content-type": "application/json" };
  const post = (body: string | Uint8Array<ArrayBuffer>, headers: Record<string, string> = {}) =>
    fetch(`${url}/v1/chat/completions`, { method: "POST", headers: { ...authorized, ...headers }, body });
  const responses = [
    await fetch(`${url}/v1/nothing`),
    await fetch(`${url}/v1/images/edits`),
    await fetch(`${url}/models`),
    await fetch(`${url}/v1/v1/models`),
    await fetch(`${url}/v1/models`, { method: "DELETE" }),
    await fetch(`${url}/v1/models`),
    await fetch(`${url}/v1/models?access_token=a`, { headers: authorized }),
    await fetch(`${url}/v1/models/unknown`, { headers: authorized }),
    await post("x", { "content-type": "text/plain" }),
    await post("x", { "content-encoding": "gzip" }),
    await post(""),
    await post(Uint8Array.of(0xff)),
    await post('{"a": }'),
    await post(" ".repeat(2_000)),
    await post("[".repeat(200)),
    await post('{"model":"m","messages":[{"role":"user","content":"x"}]}', { "idempotency-key": "ä" }),
  ];
  const lines: string[] = [];
  for (const response of responses) {
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    lines.push(`${response.status} ${error.code}\n    ${error.message.replaceAll(url, "http://localhost")}`);
  }
  return lines;
}

const HELP_WIDTH = 120;

function helpSections(): string[] {
  const terminal = { out: () => undefined, error: () => undefined };
  const sections: string[] = [];
  const add = (command: Command, parents: readonly string[]) => {
    const path = [...parents, command.name()];
    const help = command.configureOutput({ getOutHelpWidth: () => HELP_WIDTH }).helpInformation();
    sections.push(section(`${path.join(" ")} --help`, [help.trimEnd()]));
    for (const child of command.commands) add(child, path);
  };
  add(createProgram(terminal as unknown as Parameters<typeof createProgram>[0], "0.0.0"), []);
  return sections;
}
