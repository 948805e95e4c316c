import { LLMock } from "@copilotkit/aimock";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, startService } from "../support/service.ts";
import { converse } from "./conversation.ts";

/** Upstreams that nobody here wrote, each on its own wire, all with the same script. */
const WIRES = [
  { id: "compatible", kind: "openai-compatible", path: "/v1", model: "gpt-4o" },
  { id: "anthropic", kind: "anthropic", path: "/v1", model: "claude-sonnet-4-6" },
  { id: "google", kind: "google", path: "/v1beta", model: "gemini-2.5-flash" },
  { id: "bedrock", kind: "bedrock", path: "", model: "anthropic.claude-sonnet-4-6" },
] as const;
const PRICE = { input: 1.251, cachedInput: 0.127, output: 10.003 };
const AMAZON = { region: "eu-central-1", accessKeyId: "AKIATEST", secretAccessKey: "secret" };

let upstream: LLMock;
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  upstream = new LLMock({ port: 0 });
  upstream.on(
    { userMessage: "weather", hasToolResult: false },
    {
      toolCalls: [
        { name: "weather", arguments: '{"city":"Bern"}' },
        { name: "weather", arguments: '{"city":"Chur"}' },
      ],
    },
  );
  upstream.on({ userMessage: "weather", hasToolResult: true }, { content: "Bern 12, Chur 9 degrees." });
  await upstream.start();
  const providers = WIRES.map(({ id, kind, path }) => {
    const own = kind === "bedrock" ? AMAZON : { apiKey: "mock" };
    return { id, kind, baseUrl: `${upstream.url}${path}`, ...own };
  });
  const models = WIRES.map(({ id, model }) => ({ id: `by-${id}`, price: PRICE, routes: [{ provider: id, model }] }));
  service = await startService({ config: { providers, models } });
  const { token } = await makeOrganization(service, "10");
  client = new OpenAI({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 });
});

afterAll(async () => {
  await service?.end();
  await upstream?.stop();
});

/** All that differs from one answer to the next on any wire. */
const CHANGING = new Set(["id", "created", "model", "organization_id", "tool_call_id"]);

function stable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(stable);
  if (typeof value !== "object" || value === null) return typeof value === "number" ? "a number" : value;
  const entries = Object.entries(value).map(([key, member]) => [
    key,
    CHANGING.has(key) ? typeof member : stable(member),
  ]);
  return Object.fromEntries(entries);
}

describe.each([false, true])("the same conversation with tools; streamed: %s", (stream) => {
  test("cannot be told apart on any wire but by the model's name", async () => {
    const heard = await Promise.all(WIRES.map(({ id }) => converse(client, `by-${id}`, stream)));
    const [reference] = heard;
    const [asked, answered] = reference ?? [];
    expect(asked?.choices[0]?.finish_reason).toBe("tool_calls");
    const calls = asked?.choices[0]?.message.tool_calls ?? [];
    expect(calls.map((call) => call.type === "function" && call.function)).toEqual([
      { name: "weather", arguments: '{"city":"Bern"}' },
      { name: "weather", arguments: '{"city":"Chur"}' },
    ]);
    expect(answered?.choices[0]?.message.content).toBe("Bern 12, Chur 9 degrees.");
    for (const [index, conversation] of heard.entries()) {
      expect(conversation.map(({ model }) => model)).toEqual(Array.from({ length: 2 }, () => `by-${WIRES[index]?.id}`));
      expect(stable(conversation)).toEqual(stable(reference));
    }
  });
});

test("each wire was spoken", () => {
  const paths = upstream.getRequests().map(({ path }) => path);
  for (const part of ["/v1/chat/completions", "/v1/messages", ":generateContent", "/converse", "/converse-stream"]) {
    expect(paths.some((path) => path.includes(part))).toBe(true);
  }
});
