import { createGoogle } from "@ai-sdk/google";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeOrganization, type RunningService, settledUsage, startService } from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const usage = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
/** Provider data of a call, which a client of this wire returns in its signature. */
const STATE = { google: { thought_signature: "Z29vZ2xl" } };

let upstream: Upstream;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startUpstream();
  const price = { input: 1_000, output: 1_000 };
  const capabilities = ["chat", "streaming", "tools", "structured_output"];
  const models = ["act", "json"].map((id) => ({ id, price, capabilities, routes: [{ provider: "up", model: id }] }));
  service = await startService({ config: { providers: [upstream.provider], models } });
  ({ token } = await makeOrganization(service, "1000"));
  upstream.behave("json", answering({ words: ['{"city":', '"Bern"}'], usage }));
  upstream.behave("act", (request) => {
    const { body, response } = request;
    const messages = body.messages as { role: string }[];
    if (messages.at(-1)?.role === "tool") return answering({ words: ["Done."], usage })(request);
    const calls = ["a", "b"].map((at, index) => {
      const called = { name: "look", arguments: JSON.stringify({ at }) };
      return {
        index,
        id: `call_${at}`,
        type: "function",
        function: called,
        ...(index === 0 && { extra_content: STATE }),
      };
    });
    if (body.stream !== true) {
      const message = { role: "assistant", content: "I look.", tool_calls: calls };
      return sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: "tool_calls" }], usage });
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const choices = [{ index: 0, delta: { content: "I look.", tool_calls: calls }, finish_reason: "tool_calls" }];
    response.end(`data: ${JSON.stringify({ choices, usage })}\n\ndata: [DONE]\n\n`);
  });
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const modelOf = (id: string) => createGoogle({ baseURL: `${service.url}/v1beta`, apiKey: token })(id);

test.each([false, true])("The AI SDK's package for Google finishes a tool loop; streamed: %s.", async (isStreamed) => {
  const seen: unknown[] = [];
  const look = tool({
    inputSchema: jsonSchema<{ at: string }>({ type: "object", properties: { at: { type: "string" } } }),
    execute: async ({ at }) => {
      seen.push(at);
      return `seen ${at}`;
    },
  });
  const asked = { model: modelOf("act"), tools: { look }, stopWhen: stepCountIs(3), maxRetries: 0, prompt: "Go" };
  const before = (await settledUsage(service, token)).creditsUsed;
  const { text, steps } = isStreamed ? streamText(asked) : await generateText(asked);
  expect([await text, (await steps).length, seen]).toEqual(["Done.", 2, ["a", "b"]]);
  expect(upstream.requests.at(-1)?.body.messages).toMatchObject([
    { role: "user", content: "Go" },
    {
      ...{ role: "assistant", content: "I look." },
      tool_calls: [{ function: { name: "look", arguments: '{"at":"a"}' } }, { function: { arguments: '{"at":"b"}' } }],
    },
    { role: "tool", content: expect.stringContaining("seen a") },
    { role: "tool", content: expect.stringContaining("seen b") },
  ]);
  expect((await settledUsage(service, token)).creditsUsed - before).toBeCloseTo(0.02, 6);
});

test("The AI SDK's package for Google reads structured output and usage.", async () => {
  const schema = jsonSchema<{ city: string }>({ type: "object", properties: { city: { type: "string" } } });
  const { output, usage: used } = await generateText({
    ...{ model: modelOf("json"), prompt: "Where?", maxRetries: 0 },
    output: Output.object({ schema }),
  });
  expect(output).toEqual({ city: "Bern" });
  expect([used.inputTokens, used.outputTokens]).toEqual([7, 3]);
  expect(upstream.requests.at(-1)?.body.response_format).toMatchObject({ type: "json_schema" });
});
