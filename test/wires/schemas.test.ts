import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createProvider } from "../../src/providers/index.ts";
import { KNOWN_PROVIDERS } from "../../src/providers/registry.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { settingsOf } from "../support/wire.ts";
import type { WireFixture } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

const fixtureOf = (kind: string) => FIXTURES.find((fixture) => fixture.kind === kind) as WireFixture;
const KINDS = ["bedrock", "anthropic"];

/** A schema with a property that has the name of a keyword. */
const SCHEMA = {
  type: "object",
  properties: {
    labels: {
      type: "array",
      description: "Short ones.",
      items: { type: "string", maxLength: 9 },
      maxItems: 3,
      minItems: 2,
    },
    maxItems: { type: "integer", minimum: 1 },
    some: { type: "array", items: { type: "string" }, minItems: 1 },
  },
  required: ["labels", "maxItems", "some"],
  additionalProperties: false,
};
const VALUES = { maxLength: 9, maxItems: 3, minItems: 2, minimum: 1 };
const KEYWORDS = Object.keys(VALUES);
const tool = (strict: boolean) => [{ type: "function", function: { name: "save", parameters: SCHEMA, strict } }];
const format = { type: "json_schema", json_schema: { name: "labels", schema: SCHEMA } };
const namesIn = (answer: Response) => answer.headers.get("x-tollgate-ignored")?.split(", ") ?? [];

let upstream: ScriptedServer;
let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const fixtures = KINDS.map(fixtureOf);
  const providers = fixtures.map(({ kind, basePath, settings }) => {
    return { id: kind, kind, baseUrl: `${upstream.origin}${basePath}`, ...settings };
  });
  const capabilities = ["tools", "structured_output"];
  const models = fixtures.map(({ kind, model }) => {
    return { id: `by-${kind}`, capabilities, price: { input: 1, output: 1 }, routes: [{ provider: kind, model }] };
  });
  service = await startService({ config: { providers, models } });
  organization = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

async function ask(kind: string, fields: object) {
  upstream.answer(scripted(fixtureOf(kind), fixtureOf(kind).text, false));
  const messages = [{ role: "user", content: "hello" }];
  const answer = await send(service, "/v1/chat/completions", organization.token, {
    model: `by-${kind}`,
    messages,
    ...fields,
  });
  expect(answer.status).toBe(200);
  return { ignored: namesIn(answer), sent: JSON.stringify(upstream.requests[0]?.body) };
}

describe("schemas refused by Bedrock for maxItems", () => {
  test.each(KINDS)("%s is sent the keywords of an answer's schema as text, and the answer names them", async (kind) => {
    const { ignored, sent } = await ask(kind, { response_format: format });
    expect(ignored.sort()).toEqual(KEYWORDS.map((one) => `response_format.json_schema.schema.${one}`).sort());
    for (const keyword of KEYWORDS) expect(sent).not.toMatch(new RegExp(`"${keyword}":\\d`));
    expect(sent).toContain("Short ones.\\n\\n{maxItems: 3, minItems: 2}");
    expect(sent).toContain('"maxItems":{"description":"{minimum: 1}"');
  });

  test.each(KINDS)("%s is sent the keywords of a strict tool as text, and the answer names them", async (kind) => {
    const { ignored, sent } = await ask(kind, { tools: tool(true) });
    expect(ignored.sort()).toEqual(KEYWORDS.map((one) => `tools.function.parameters.${one}`).sort());
    expect(sent).toContain('"strict":true');
    expect(sent).toContain('"description":"{maxLength: 9}"');
    expect(sent.match(/"(minItems|maxItems|maxLength|minimum)":\d/g)).toEqual(['"minItems":1']);
  });

  test.each(KINDS)("%s is sent the schema of another tool unchanged", async (kind) => {
    const { ignored, sent } = await ask(kind, { tools: tool(false) });
    expect(ignored).toEqual([]);
    expect(sent).toContain(JSON.stringify(SCHEMA.properties.labels));
  });
});

/** The keywords of `SCHEMA` that each provider refuses. */
const LIMITS: readonly [string, string, readonly string[]][] = [
  ["openai", "gpt-5.2", []],
  ["groq", "openai/gpt-oss-120b", ["maxItems", "minItems"]],
  ["cerebras", "zai-glm-4.7", ["maxItems", "minItems"]],
  ["openrouter", "anthropic/claude-sonnet-4.6", KEYWORDS],
  ["openrouter", "google/gemini-3-flash", []],
  ["moonshotai", "kimi-k2.5", []],
];

describe.each(LIMITS)("%s with %s", (id, model, refused) => {
  const requestFormat = KNOWN_PROVIDERS.find((known) => known.id === id)?.requestFormat ?? {};
  const fixture = fixtureOf("openai-compatible");

  test.each([true, false])("is sent a schema without the keywords that it refuses; strict: %s", async (strict) => {
    upstream.answer(scripted(fixture, fixture.text, false));
    const provider = createProvider(settingsOf(`${upstream.origin}${fixture.basePath}`, { requestFormat }), {});
    const response_format = { type: "json_schema" as const, json_schema: { ...format.json_schema, strict } };
    const messages = [{ role: "user" as const, content: "go" }];
    const request = { model, messages, max_tokens: 100, stream: false, response_format };
    const { ignored = [] } = await provider.complete({ request, signal: new AbortController().signal });
    await provider.close();
    const enforced = strict || refused === KEYWORDS ? refused : [];
    expect([...ignored].sort()).toEqual(enforced.map((one) => `response_format.json_schema.schema.${one}`).sort());
    const sent = JSON.stringify(upstream.requests[0]?.body.response_format);
    for (const [keyword, value] of Object.entries(VALUES)) {
      expect(sent.includes(`"${keyword}":${value}`)).toBe(!enforced.includes(keyword));
      expect(sent.includes(`${keyword}: ${value}`)).toBe(enforced.includes(keyword));
    }
  });
});
