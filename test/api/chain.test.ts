import { LLMock } from "@copilotkit/aimock";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeOrganization, type Organization, type RunningService, startService, usageOf } from "../support/service.ts";

/** Prices with three decimals, so that a wrong rounding shows. */
const PRICE = { input: 1.251, cachedInput: 0.127, output: 10.003 };
const usage = { prompt_tokens: 237, completion_tokens: 89, total_tokens: 326 };

let upstream: LLMock;
let service: RunningService;
let organization: Organization;
let client: OpenAI;

beforeAll(async () => {
  upstream = new LLMock({ port: 0 });
  upstream.onMessage("hello", { content: "Hello from far away, in a few words.", usage });
  upstream.onMessage("weather", {
    toolCalls: [{ name: "weather", arguments: '{"city":"Bern"}' }],
    usage,
  });
  await upstream.start();
  service = await startService({
    config: {
      providers: [{ id: "foreign", kind: "openai-compatible", baseUrl: `${upstream.url}/v1`, apiKey: "mock" }],
      models: [{ id: "far", price: PRICE, routes: [{ provider: "foreign", model: "gpt-4o" }] }],
    },
  });
  organization = await makeOrganization(service, "10");
  client = new OpenAI({ apiKey: organization.token, baseURL: service.baseUrl, maxRetries: 0 });
});

afterAll(async () => {
  await service?.end();
  await upstream?.stop();
});

const spentNow = async () => {
  const { creditsUsed } = await usageOf(service, organization.token);
  return Math.round(creditsUsed * 1e6);
};
/** ceil(sum(tokens x price)), in integers: prices in thousandths of a micro-credit a token. */
const expectedMicroCredits = Math.ceil((usage.prompt_tokens * 1251 + usage.completion_tokens * 10_003) / 1000);

describe("With an independent upstream", () => {
  test("A response that is not streamed has the upstream's text and usage, and is charged to the micro-credit.", async () => {
    const before = await spentNow();
    const completion = await client.chat.completions.create({
      model: "far",
      messages: [{ role: "user", content: "hello" }],
    });
    expect(completion.choices[0]?.message.content).toBe("Hello from far away, in a few words.");
    expect(completion.usage).toMatchObject(usage);
    expect(await spentNow()).toBe(before + expectedMicroCredits);
  });

  test("A streamed response has the upstream's text and usage, and is charged to the micro-credit.", async () => {
    const before = await spentNow();
    const stream = await client.chat.completions.create({
      model: "far",
      messages: [{ role: "user", content: "hello" }],
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let reported: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      reported = chunk.usage ?? reported;
    }
    expect(text).toBe("Hello from far away, in a few words.");
    expect(reported).toMatchObject(usage);
    expect(await spentNow()).toBe(before + expectedMicroCredits);
  });

  test.each([false, true])("A tool call is passed through, streamed: %s.", async (stream) => {
    const parameters = { type: "object", properties: { city: { type: "string" } } };
    const request = {
      model: "far",
      messages: [{ role: "user" as const, content: "weather" }],
      tools: [{ type: "function" as const, function: { name: "weather", parameters } }],
    };
    const completion = stream
      ? await client.chat.completions.stream(request).finalChatCompletion()
      : await client.chat.completions.create(request);
    const call = completion.choices[0]?.message.tool_calls?.[0];
    expect(completion.choices[0]?.finish_reason).toBe("tool_calls");
    expect(call).toMatchObject({ type: "function", function: { name: "weather", arguments: '{"city":"Bern"}' } });
  });

  test("The upstream request has the upstream's model name and asks for the usage.", () => {
    const bodies = upstream.getRequests().map((entry) => entry.body as unknown as Record<string, unknown>);
    expect(bodies.every((body) => body.model === "gpt-4o")).toBe(true);
    expect(bodies.filter((body) => body.stream === true)[0]).toMatchObject({ stream_options: { include_usage: true } });
  });
});
