import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { afterAll, beforeAll, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { makeDirectory, makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

const PATIENCE = { timeout: 180_000 };
const PRICE = { input: 0.000001, output: 1_000_000 };
const SENTENCE = "When the rain had stopped, the old gardener walked along the river and counted the boats below. ";
const proseOf = (tokens: number) => SENTENCE.repeat(Math.round((tokens * 100) / countTokens(SENTENCE.repeat(100))));

let upstream: Upstream;
let service: RunningService;
let dataDir: string;

/** The route to phi-4 has a context window of 16,384 tokens, the others that of their model. */
const serve = (contextWindow: number) => {
  const model = (id: string, routes: readonly string[]) => {
    const settings = { contextWindow, maxOutputTokens: 8_192, price: PRICE };
    return { id, ...settings, routes: routes.map((name) => ({ provider: "up", model: name })) };
  };
  return startService({
    dataDir,
    config: { providers: [upstream.provider], models: [model("m", ["m"]), model("either", ["phi-4", "m"])] },
  });
};

function ask(token: string, content: string, fields: object = {}, headers: Record<string, string> = {}) {
  const body = { model: "m", messages: [{ role: "user", content }], ...fields };
  return send(service, "/v1/chat/completions", token, body, { headers });
}

/** Returns the status of an answer, and the code of its error. */
async function resultOf(answer: Response): Promise<[number, string | undefined]> {
  const { error } = (await answer.json()) as { error?: { code: string } };
  return [answer.status, error?.code];
}

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave(
    "m",
    answering({ words: ["a ", "b"], usage: { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 } }),
  );
  dataDir = await makeDirectory();
  service = await serve(32_768);
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

async function withMinuteLimit(tokensPerMinute: number, credits: string): Promise<string> {
  const { id, token } = await makeOrganization(service, credits);
  const limits = { tokens_per_minute: tokensPerMinute };
  expect((await operator(service).call("PATCH", `/organizations/${id}`, { limits })).status).toBe(200);
  return token;
}

test.each([
  ["too long for the model", 50_000, "1000000", [400, "context_length_exceeded"]],
  ["not covered by the credits", 28_000, "1", [402, "insufficient_credits"]],
])(
  "A prompt that is counted and %s stays in the tokens per minute.",
  PATIENCE,
  async (_why, tokens, credits, refusal) => {
    const token = await withMinuteLimit(100_000, credits);
    const text = proseOf(tokens);
    const results: unknown[] = [];
    for (let count = 0; count < 5; count += 1) results.push(await resultOf(await ask(token, text)));
    expect(results[0]).toEqual(refusal);
    expect(results.at(-1)).toEqual([429, "rate_limit_exceeded"]);
  },
);

test("A prompt that is not counted leaves no tokens in the minute where it is refused.", PATIENCE, async () => {
  const token = await withMinuteLimit(10_000, "1");
  for (let count = 0; count < 5; count += 1) {
    expect(await resultOf(await ask(token, "go", { max_tokens: 4_000 }))).toEqual([402, "insufficient_credits"]);
  }
});

test("A prompt above the limits is refused without a count.", PATIENCE, async () => {
  const token = await withMinuteLimit(30_000, "1000000");
  expect(await resultOf(await ask(token, proseOf(60_000)))).toEqual([429, "rate_limit_exceeded"]);
});

test("A counted prompt stays in the tokens per minute when its stored answer is repeated.", PATIENCE, async () => {
  const token = await withMinuteLimit(100_000, "1000000");
  const text = proseOf(22_000);
  const results: unknown[] = [];
  for (let count = 0; count < 5; count += 1) {
    results.push(await resultOf(await ask(token, text, {}, { "idempotency-key": "one" })));
  }
  expect(results.slice(0, 2)).toEqual([
    [200, undefined],
    [200, undefined],
  ]);
  expect(results.at(-1)).toEqual([429, "rate_limit_exceeded"]);
});

test("A counted prompt is not sent to a route whose context window it certainly exceeds.", PATIENCE, async () => {
  const { token } = await makeOrganization(service, "1000000");
  const answer = await ask(token, proseOf(22_000), { model: "either" });
  expect([answer.status, answer.headers.get("x-tollgate-route")]).toEqual([200, "up/m"]);
  expect(upstream.requests.at(-1)?.body.model).toBe("m");
  expect(upstream.requests.filter(({ body }) => body.model === "phi-4")).toEqual([]);
});

test("A stored answer is repeated although a count of its prompt refuses new ones.", PATIENCE, async () => {
  const { token } = await makeOrganization(service, "1000000");
  const text = proseOf(22_000);
  const first = await ask(token, text, {}, { "idempotency-key": "one" });
  expect(first.status).toBe(200);
  const answer = await first.json();
  await service.end();
  service = await serve(14_000);
  const before = upstream.requests.length;
  expect(await resultOf(await ask(token, text))).toEqual([400, "context_length_exceeded"]);
  const again = await ask(token, text, {}, { "idempotency-key": "one" });
  expect([again.status, again.headers.get("x-tollgate-idempotent-replay")]).toEqual([200, "true"]);
  expect(await again.json()).toEqual(answer);
  expect(upstream.requests.length).toBe(before);
  expect(await resultOf(await ask(token, text, {}, { "idempotency-key": "two" }))).toEqual([200, undefined]);
});
