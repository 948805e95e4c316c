import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { toEncodedText } from "../../src/api/embeddings/vector.ts";
import { createProvider } from "../../src/providers/index.ts";
import type { Provider, TaskCall, UpstreamChunk } from "../../src/providers/provider.ts";
import type { ProviderSettings } from "../../src/providers/settings.ts";
import { settingsOf } from "../support/wire.ts";

interface Sent {
  path: string;
  body: Record<string, unknown>;
}

let origin: string;
let sent: Sent[];
let answer: (request: Sent) => { status?: number; body: unknown };
const server = createServer(async (request, response: ServerResponse) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const received = { path: request.url ?? "", body: JSON.parse(text) };
  sent.push(received);
  const { status = 200, body } = answer(received);
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
});

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => new Promise((resolve) => server.close(resolve)));
beforeEach(() => {
  sent = [];
});

/** Runs work where nobody else waits. */
const atOnce = async <Result>(work: () => Result) => work();

/** Creates embeddings with a provider. Returns their only chunk, with the hints that it ignored. */
async function embedWith(
  provider: Provider,
  { model = "m", encoding = "float", ...order }: Partial<TaskCall<"embedding">["request"]>,
  inTurn: TaskCall<"embedding">["inTurn"] = atOnce,
) {
  const request = { model, encoding, inputs: ["a"], ...order };
  const { signal } = new AbortController();
  const answer = await provider.tasks?.embedding?.({ model, request, signal, inTurn });
  const pieces: UpstreamChunk[] = [];
  for await (const batch of answer?.chunks ?? []) pieces.push(...batch);
  expect(pieces).toHaveLength(1);
  return { ...pieces[0], ignored: answer?.ignored };
}

/** Creates embeddings with a provider of the kind, whose address is the test's own server. */
async function embed(
  kind: string,
  model: string,
  inputs: readonly string[],
  fields: { dimensions?: number; user?: string } = {},
) {
  const amazon: Partial<ProviderSettings> = kind === "bedrock" ? { region: "eu-central-1" } : {};
  const provider = createProvider(settingsOf(origin, { kind, apiKey: "k", ...amazon }), {});
  try {
    return await embedWith(provider, { model, inputs, ...fields });
  } finally {
    await provider.close();
  }
}

/** Returns the vectors as they are sent. */
const numbersOf = ({ vectors }: Awaited<ReturnType<typeof embedWith>>) =>
  vectors?.map((vector) => vector && JSON.parse(toEncodedText(vector, "float")));

const vectorOf = (text: unknown) => [Number(text), 0.5];
const numbered = (count: number) => Array.from({ length: count }, (_, index) => String(index));

interface WireCase {
  kind: string;
  model: string;
  /** Returns the vectors of the inputs of a request as the wire writes them. */
  write(body: Record<string, unknown>): unknown;
  path: RegExp;
  /** Fields of a request for two dimensions. */
  asks: object;
  /** Tokens that the answers to one call report; undefined where the wire reports none. */
  tokens: number | undefined;
  inputsACall: number;
}

interface GeminiRequest {
  content: { parts: { text: string }[] };
}
const gemini = (body: Record<string, unknown>) => {
  const requests = (body.requests ?? [body]) as GeminiRequest[];
  const embeddings = requests.map(({ content }) => ({ values: vectorOf(content.parts[0]?.text) }));
  return body.requests === undefined ? { embedding: embeddings[0] } : { embeddings };
};
/** The first text of a call counts as 5 tokens, so that every call reports the same. */
const vertex = ({ instances = [] }: Record<string, unknown>) => ({
  predictions: (instances as { content: string }[]).map(({ content }, index) => {
    return {
      embeddings: { values: vectorOf(content), statistics: { token_count: index === 0 ? 5 : 0, truncated: false } },
    };
  }),
});
const openai = ({ input }: Record<string, unknown>) => ({
  data: [input].flat().map((text, index) => ({ object: "embedding", index, embedding: vectorOf(text) })),
  usage: { prompt_tokens: 5, total_tokens: 5 },
});
const cohere = ({ texts }: Record<string, unknown>) => ({
  id: "1",
  embeddings: { float: (texts as string[]).map(vectorOf) },
  meta: { billed_units: { input_tokens: 5 } },
});
const titan = ({ inputText }: Record<string, unknown>) => ({ embedding: vectorOf(inputText), inputTextTokenCount: 5 });

const WIRES: WireCase[] = [
  {
    ...{ kind: "openai-compatible", model: "m", write: openai, path: /^\/embeddings$/ },
    ...{ asks: { dimensions: 2, encoding_format: "float" }, tokens: 5, inputsACall: 2_048 },
  },
  {
    ...{ kind: "google", model: "gemini-embedding-001", write: gemini, path: /:embedContent$|:batchEmbedContents$/ },
    ...{ asks: { outputDimensionality: 2 }, tokens: undefined, inputsACall: 64 },
  },
  {
    ...{ kind: "google-vertex", model: "gemini-embedding-001", write: vertex, path: /:predict$/ },
    ...{ asks: { parameters: { autoTruncate: false, outputDimensionality: 2 } }, tokens: 5, inputsACall: 1 },
  },
  {
    ...{ kind: "google-vertex", model: "text-embedding-005", write: vertex, path: /text-embedding-005:predict$/ },
    ...{ asks: { parameters: { autoTruncate: false, outputDimensionality: 2 } }, tokens: 5, inputsACall: 9 },
  },
  {
    ...{ kind: "mistral", model: "mistral-embed", write: openai, path: /^\/embeddings$/ },
    ...{ asks: { output_dimension: 2 }, tokens: 5, inputsACall: 32 },
  },
  {
    ...{ kind: "azure", model: "deployed", write: openai, path: /embeddings/ },
    ...{ asks: { dimensions: 2, encoding_format: "float" }, tokens: 5, inputsACall: 2_048 },
  },
  {
    ...{ kind: "cohere", model: "embed-v4.0", write: cohere, path: /^\/embed$/ },
    ...{ asks: { truncate: "NONE", input_type: "search_document" }, tokens: 5, inputsACall: 64 },
  },
  {
    ...{ kind: "bedrock", model: "amazon.titan-embed-text-v2:0", write: titan, path: /^\/model\/.*\/invoke$/ },
    ...{ asks: {}, tokens: 5, inputsACall: 1 },
  },
];

test.each(WIRES)(
  "$kind: as many calls as needed are made, and the vectors keep the order of the inputs.",
  async (wire) => {
    answer = ({ body }) => ({ body: wire.write(body) });
    const inputs = numbered(70);
    const result = await embed(wire.kind, wire.model, inputs);
    expect(numbersOf(result)).toEqual(inputs.map(vectorOf));
    const calls = Math.ceil(inputs.length / wire.inputsACall);
    expect(sent).toHaveLength(calls);
    for (const { path } of sent) expect(path).toMatch(wire.path);
    const tokens = wire.tokens === undefined ? undefined : wire.tokens * calls;
    expect(result.usage?.prompt_tokens).toBe(tokens);
  },
);

test.each(WIRES)("$kind: the fields of a request are those of the wire.", async (wire) => {
  answer = ({ body }) => ({ body: wire.write(body) });
  const isFixed = wire.kind === "cohere" || wire.kind === "bedrock";
  const result = await embed(wire.kind, wire.model, ["1"], { user: "u", ...(!isFixed && { dimensions: 2 }) });
  expect(numbersOf(result)).toEqual([vectorOf(1)]);
  expect(sent[0]?.body).toMatchObject(wire.asks);
  expect(result.ignored ?? []).toEqual(["openai-compatible", "azure"].includes(wire.kind) ? [] : ["user"]);
});

test.each([
  ["cohere", "embed-v4.0", cohere, { output_dimension: 256 }],
  ["bedrock", "amazon.titan-embed-text-v2:0", titan, { dimensions: 256 }],
] as const)("%s: dimensions have the wire's own name.", async (kind, model, write, fields) => {
  answer = ({ body }) => ({ body: write(body) });
  await embed(kind, model, ["1"], { dimensions: 256 });
  expect(sent[0]?.body).toMatchObject(fields);
});

test.each(WIRES)("$kind: a failure is told in the service's terms.", async ({ kind, model, write }) => {
  answer = () => ({ status: 500, body: { error: { message: "down" } } });
  await expect(embed(kind, model, numbered(70))).rejects.toMatchObject({ failure: "failed" });
  answer = () => ({ status: 429, body: { error: { message: "slow down" } } });
  await expect(embed(kind, model, ["1"])).rejects.toMatchObject({ failure: "rate_limited" });
  answer = () => ({ body: { unexpected: write({ input: [], texts: [], requests: [] }) } });
  await expect(embed(kind, model, ["1"])).rejects.toMatchObject({ failure: "malformed" });
});

test("An upstream that takes base64 is asked for it.", async () => {
  answer = () => ({ body: openai({ input: "1" }) });
  const requestFormat = { encodesEmbeddings: true };
  const provider = createProvider(settingsOf(origin, { kind: "openai-compatible", requestFormat }), {});
  await embedWith(provider, { inputs: [[1, 2]], encoding: "base64" });
  await provider.close();
  expect(sent[0]?.body).toEqual({ model: "m", input: [1, 2], encoding_format: "base64" });
});

test("A long answer is read in the caller's turns, and a short one at once.", async () => {
  const turns: (() => void)[] = [];
  let isFree = false;
  const inTurn = <Result>(work: () => Result) =>
    isFree ? atOnce(work) : new Promise<Result>((resolve) => turns.push(() => resolve(work())));
  const provider = createProvider(settingsOf(origin, { kind: "openai-compatible" }), {});
  const embed = (length: number) => {
    answer = () => ({ body: { data: [{ index: 0, embedding: Array.from({ length }, () => 0.5) }] } });
    return embedWith(provider, {}, inTurn);
  };
  expect(numbersOf(await embed(2))).toEqual([[0.5, 0.5]]);
  expect(turns).toHaveLength(0);
  const long = embed(100_000);
  await expect.poll(() => turns.length).toBe(1);
  isFree = true;
  turns[0]?.();
  expect(numbersOf(await long)?.[0]).toHaveLength(100_000);
  await provider.close();
});

test("A provider with a second wire creates embeddings of texts and token ids.", async () => {
  answer = () => ({ body: { data: [{ index: 0, embedding: [0.5] }] } });
  const secondWire = { wire: "responses" } as const;
  const provider = createProvider(settingsOf(origin, { kind: "openai-compatible", secondWire }), {});
  try {
    expect(provider).toMatchObject({ nativeWire: "responses", takesTokenIds: true });
    expect(numbersOf(await embedWith(provider, { inputs: [[1, 2]] }))).toEqual([[0.5]]);
    expect(sent).toMatchObject([{ path: "/embeddings", body: { model: "m", input: [1, 2] } }]);
  } finally {
    await provider.close();
  }
});
