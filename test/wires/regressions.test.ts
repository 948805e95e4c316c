import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { CALLS, PNG } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

const PRICE = { input: 1, output: 10 };
/** 100 prompt tokens and 30 completion tokens. */
const COST = 400e-6;

let upstream: ScriptedServer;
let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const providers = FIXTURES.map(({ kind, basePath, settings }) => {
    return { id: kind, kind, baseUrl: `${upstream.origin}${basePath}`, ...settings };
  });
  const capabilities = ["tools", "vision"];
  const models = FIXTURES.map(({ kind, model }) => {
    return { id: `by-${kind}`, capabilities, price: PRICE, routes: [{ provider: kind, model }] };
  });
  service = await startService({ config: { providers, models } });
  organization = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

const QUESTION = { role: "user" as const, content: "hello" };

async function available(): Promise<number> {
  const answer = await send(service, "/v1/usage", organization.token);
  return ((await answer.json()) as { creditsAvailable: number }).creditsAvailable;
}

describe.each(FIXTURES)("$kind", (fixture) => {
  const model = `by-${fixture.kind}`;
  const ask = (fields: object) =>
    send(service, "/v1/chat/completions", organization.token, { model, messages: [QUESTION], ...fields });

  test("An answer that ends too early is not charged, and the SDK's retry is charged once.", async () => {
    const whole = scripted(fixture, fixture.text, false);
    upstream.answer({ ...whole, body: whole.body.slice(0, 40) }, whole);
    const before = await available();
    const client = new OpenAI({ apiKey: organization.token, baseURL: service.baseUrl, maxRetries: 1 });
    const { usage } = await client.chat.completions.create({ model, messages: [QUESTION] });
    expect(upstream.requests).toHaveLength(2);
    expect(usage).toMatchObject({ prompt_tokens: 100, completion_tokens: 30 });
    expect(before - (await available())).toBeCloseTo(COST, 6);
  });

  test.each([false, true])("Parallel calls are not merged; streamed: %s", async (stream) => {
    upstream.answer(scripted(fixture, fixture.tools, stream));
    const body = { model, stream, messages: [QUESTION], max_tokens: 100 };
    const text = await (await send(service, "/v1/messages", organization.token, body)).text();
    const calls = [...text.matchAll(/"type":"tool_use","id":"([^"]+)","name":"weather"/g)];
    expect(new Set(calls.map(([, id]) => id)).size).toBe(CALLS.length);
  });

  test("A file is sent to the upstream or refused, never dropped.", async () => {
    const file = { filename: "a.pdf", file_data: `data:application/pdf;base64,${PNG}` };
    upstream.answer(scripted(fixture, fixture.text, false));
    const content = [
      { type: "text", text: "See:" },
      { type: "file", file },
    ];
    const answer = await ask({ messages: [{ role: "user", content }] });
    if (answer.status === 200) expect(JSON.stringify(upstream.requests[0]?.body)).toContain(PNG);
    else {
      expect(await answer.json()).toMatchObject({ error: { code: "unsupported_value" } });
      expect(upstream.requests).toEqual([]);
    }
  });

  test("An upstream's errors are not charged.", async () => {
    const before = await available();
    for (const { status, headers = {}, body } of fixture.errors) {
      upstream.answer({ status, headers, body: JSON.stringify(body) });
      const answer = await ask({});
      expect(answer.status).toBeGreaterThanOrEqual(400);
      await answer.text();
    }
    expect(await available()).toBe(before);
  });
});
