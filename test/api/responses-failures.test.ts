import { createOpenAI } from "@ai-sdk/openai";
import { streamText } from "ai";
import OpenAI7 from "openai";
import OpenAI6 from "openai6";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startService,
} from "../support/service.ts";
import { breaking, startUpstream, type Upstream } from "../support/upstream.ts";

let upstream: Upstream;
let service: RunningService;
let rich: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  const price = { input: 1_000, output: 2_000 };
  const models = ["breaking", "text"].map((id) => ({ id, price, routes: [{ provider: "up", model: id }] }));
  service = await startService({ config: { providers: [upstream.provider], models } });
  upstream.behave("breaking", breaking);
  rich = await makeOrganization(service, "1000000");
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

test("OpenAI's clients throw at a failure in the middle of a stream, with its code.", async () => {
  const thrown = { code: "upstream_error", type: "server_error" };
  const options = { apiKey: rich.token, baseURL: service.baseUrl, maxRetries: 0 };
  const [newer, older] = [new OpenAI7(options), new OpenAI6(options)];
  for (const client of [newer, older as unknown as OpenAI7]) {
    const read = async () => {
      const stream = await client.responses.create({ model: "breaking", input: "Go", stream: true });
      for await (const _event of stream);
    };
    await expect(read()).rejects.toMatchObject(thrown);
    await expect(client.responses.stream({ model: "breaking", input: "Go" }).finalResponse()).rejects.toThrow(
      "provider",
    );
  }
});

test("The AI SDK reports a failure in the middle of a stream.", async () => {
  const errors: unknown[] = [];
  const openai = createOpenAI({ apiKey: rich.token, baseURL: service.baseUrl });
  const result = streamText({
    model: openai("breaking"),
    prompt: "Go",
    maxRetries: 0,
    onError: ({ error }) => void errors.push(error),
  });
  await result.consumeStream();
  expect(JSON.stringify(errors)).toContain("upstream_error");
});

test("The tokens of an input are counted without a charge.", async () => {
  const count = (body: object) => send(service, "/v1/responses/input_tokens", rich.token, { model: "text", ...body });
  const before = upstream.requests.length;
  const charges = await settledUsage(service, rich.token);
  const answer = await count({ input: "Grüße from far away, and back again.", instructions: "Be short." });
  expect(answer.status).toBe(200);
  const { object, input_tokens: tokens } = (await answer.json()) as { object: string; input_tokens: number };
  expect(object).toBe("response.input_tokens");
  expect(tokens).toBeGreaterThan(10);
  expect(tokens).toBeLessThan(40);
  expect(upstream.requests.length).toBe(before);
  expect(await settledUsage(service, rich.token)).toEqual(charges);
  expect(await (await count({})).json()).toMatchObject({ error: { param: "input" } });
  const wrong = await count({ input: [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }] });
  expect(await wrong.json()).toMatchObject({ error: { param: "input[0].content[0].image_url" } });
});
