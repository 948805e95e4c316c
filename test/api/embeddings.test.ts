import { OpenAIEmbeddings } from "@langchain/openai";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { EmbeddingList } from "../../src/api/embeddings/request.ts";
import { operator } from "../support/admin.ts";
import {
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
  usageOf,
} from "../support/service.ts";
import { chargedIn } from "../support/tasks.ts";
import { type Behaviour, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";
import { expectEmbeddings } from "./contract-checks.ts";

const DIMENSIONS = 4;
/** A credit for each token, so that a charge shows the counted tokens. */
const PRICE = { input: 1_000_000, output: 0 };

interface Item {
  index?: number;
  embedding: unknown;
}

/** Answers with one vector for each input, changed by `change`. */
const embedding =
  (change: (items: Item[]) => Item[] = (items) => items, usage: object | undefined = undefined): Behaviour =>
  ({ body, response }) => {
    const inputs = Array.isArray(body.input) && typeof body.input[0] !== "number" ? body.input : [body.input];
    const length = typeof body.dimensions === "number" ? body.dimensions : DIMENSIONS;
    const items = inputs.map((_input, index) => ({
      index,
      embedding: Array.from({ length }, (_, at) => index + at / 4),
    }));
    sendJson(response, 200, { object: "list", data: change(items), model: "upstream", ...(usage && { usage }) });
  };
const reporting = (tokens: number) => ({ prompt_tokens: tokens, total_tokens: tokens });

const BEHAVIOURS: Record<string, Behaviour> = {
  plain: embedding(undefined, reporting(7)),
  reversed: embedding((items) => items.toReversed(), reporting(7)),
  encoded: embedding(
    (items) =>
      items.map(({ index, embedding: numbers }) => ({
        index,
        embedding: Buffer.from(new Float32Array(numbers as number[]).buffer).toString("base64"),
      })),
    reporting(7),
  ),
  silent: embedding(),
  excessive: embedding(undefined, reporting(9_999_999)),
  modest: embedding(undefined, reporting(1)),
  broken: ({ response }) => sendJson(response, 500, { error: { message: "down" } }),
  "not-json": ({ response }) => void response.writeHead(200, { "content-type": "application/json" }).end("{"),
  missing: embedding((items) => items.slice(1), reporting(7)),
  uneven: embedding((items) => items.map((item, at) => (at === 0 ? item : { ...item, embedding: [1] })), reporting(7)),
  "no-numbers": embedding((items) => items.map((item) => ({ ...item, embedding: [null] })), reporting(7)),
  "other-length": embedding((items) => items.map((item) => ({ ...item, embedding: [1, 2] })), reporting(7)),
  mute: () => {},
};
const FAILING = ["broken", "not-json", "missing", "uneven", "no-numbers"];

let upstream: Upstream;
let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  for (const [model, behaviour] of Object.entries(BEHAVIOURS)) upstream.behave(model, behaviour);
  const model = (id: string, routes = [id]) => ({
    ...{ id, category: "embedding", price: PRICE },
    routes: routes.map((route) => ({ provider: "up", model: route })),
  });
  service = await startService({
    config: {
      limits: { requestsPerMinute: 10_000 },
      providers: [upstream.provider],
      models: [
        ...Object.keys(BEHAVIOURS).map((id) => model(id)),
        model("second", ["broken", "plain"]),
        { ...model("short"), routes: [{ provider: "up", model: "plain" }], contextWindow: 4, dimensions: DIMENSIONS },
        { id: "talker", price: PRICE, routes: [{ provider: "up", model: "talker" }] },
      ],
    },
  });
  organization = await makeOrganization(service, "100000");
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

type Json = Record<string, unknown> & { error?: { code: string; param: string | null; message: string } };

async function post(body: object, options: RequestInit = {}, token = organization.token) {
  const response = await send(service, "/v1/embeddings", token, body, options);
  return { status: response.status, headers: response.headers, body: (await response.json()) as Json };
}

const charged = <T>(run: () => Promise<T>) => chargedIn(service, organization, run);

const client = (options: { model?: string } = {}) => ({
  model: options.model ?? "plain",
  openai: new OpenAI({ apiKey: organization.token, baseURL: service.baseUrl, maxRetries: 0 }),
});

describe("Embeddings through the openai package:", () => {
  test("The SDK's default encoding, base64, is decoded to the upstream's numbers.", async () => {
    const { openai } = client();
    const { answer, cost } = await charged(() => openai.embeddings.create({ model: "plain", input: ["a", "b"] }));
    expect(answer.data.map(({ embedding: numbers }) => [...numbers])).toEqual([
      [0, 0.25, 0.5, 0.75],
      [1, 1.25, 1.5, 1.75],
    ]);
    expect(answer).toMatchObject({ object: "list", model: "plain", organization_id: organization.id });
    expect(answer.usage).toEqual({ prompt_tokens: 7, total_tokens: 7, cost: 7 });
    expect(cost).toBe(7);
  });

  test("Floats are passed through, and an upstream's base64 is decoded.", async () => {
    const { openai } = client();
    for (const model of ["plain", "encoded"]) {
      const answer = await openai.embeddings.create({ model, input: "a", encoding_format: "float" });
      expect(answer.data).toEqual([{ object: "embedding", index: 0, embedding: [0, 0.25, 0.5, 0.75] }]);
    }
  });

  test("An answer in base64 has OpenAI's type once its vectors are decoded.", async () => {
    const embed = async (fields: object) => {
      const body = { model: "plain", input: ["a", "b"], ...fields };
      return (await (await send(service, "/v1/embeddings", organization.token, body)).json()) as EmbeddingList;
    };
    const { data, ...list } = await embed({ encoding_format: "base64" });
    const decoded = data.map(({ embedding, ...fields }) => {
      expect(embedding).toEqual(expect.any(String));
      const bytes = Uint8Array.from(Buffer.from(String(embedding), "base64"));
      return { ...fields, embedding: [...new Float32Array(bytes.buffer)] };
    });
    expect(expectEmbeddings({ ...list, data: decoded })).toEqual(await embed({}));
  });

  test("Token ids and dimensions reach the upstream.", async () => {
    const before = upstream.requests.length;
    const { openai } = client();
    const input = [
      [1, 2],
      [3, 4, 5],
    ];
    const answer = await openai.embeddings.create({ model: "plain", input, dimensions: 2, encoding_format: "float" });
    expect(answer.data.map(({ embedding: { length } }) => length)).toEqual([2, 2]);
    expect(upstream.requests[before]?.body).toMatchObject({ model: "plain", input, dimensions: 2 });
  });

  test("LangChain's embeddings work with the sandbox model.", async () => {
    const configuration = { baseURL: service.baseUrl };
    const langchain = new OpenAIEmbeddings({ apiKey: organization.token, model: "sandbox/embed", configuration });
    const [one = [], other = []] = await langchain.embedDocuments(["one text", "another text"]);
    expect([one.length, Math.hypot(...one)]).toEqual([256, expect.closeTo(1, 5)]);
    expect(await langchain.embedQuery("one text")).toEqual(one);
    expect(other).not.toEqual(one);
  });
});

test("The alias of an organization has the default dimensions of its model, which are not sent.", async () => {
  const own = await makeOrganization(service, "1000");
  const named = await operator(service).call("PATCH", `/organizations/${own.id}`, { aliases: { mine: "short" } });
  expect(named.status).toBe(200);
  const before = upstream.requests.length;
  const body = { model: "mine", input: "a", dimensions: DIMENSIONS };
  expect((await send(service, "/v1/embeddings", own.token, body)).status).toBe(200);
  expect(upstream.requests[before]?.body).not.toHaveProperty("dimensions");
});

test("The sandbox model respects dimensions, and counts words as tokens.", async () => {
  const run = () => post({ model: "sandbox/embed", input: ["one two", "three"], dimensions: 5, user: "u" });
  const { answer, cost } = await charged(run);
  const { data, usage } = answer.body as { data?: Item[]; usage?: { prompt_tokens: number; cost: number } };
  expect(data?.map(({ embedding: numbers }) => (numbers as number[]).length)).toEqual([5, 5]);
  expect(usage?.prompt_tokens).toBe(3);
  expect(cost).toBeCloseTo(usage?.cost ?? 0, 6);
  expect(cost).toBeGreaterThan(0);
});

test("Items in another order are placed by their index.", async () => {
  const { body } = await post({ model: "reversed", input: ["a", "b"] });
  expect((body.data as Item[]).map(({ index, embedding: numbers }) => [index, (numbers as number[])[0]])).toEqual([
    [0, 0],
    [1, 1],
  ]);
});

test("An answer has the headers of a completion.", async () => {
  const { status, headers } = await post({ model: "plain", input: "a", user: "u", colour: "red" });
  expect(status).toBe(200);
  expect(headers.get("x-credits-charged")).toBe("7");
  expect(headers.get("x-tollgate-route")).toBe("up/plain");
  expect(headers.get("x-tollgate-ignored")).toBe("colour");
  for (const name of ["x-request-id", "x-credits-available", "x-ratelimit-remaining-tokens", "ratelimit"]) {
    expect(headers.get(name), name).not.toBeNull();
  }
});

describe("The charge is", () => {
  test.each([
    ["counted where the upstream reports nothing", "silent", "one two three", 3],
    ["the bound where the report is above it", "excessive", "one", 3 + 8],
    ["the report where it is a little below the count", "modest", "one two three", 1],
    ["the count where the report is far below it", "modest", "word ".repeat(500).trimEnd(), 500],
  ])("%s.", async (_name, model, input, tokens) => {
    const { answer, cost } = await charged(() => post({ model, input }));
    expect(answer.status).toBe(200);
    expect(cost).toBe(tokens);
  });

  test("the number of token ids where the upstream reports nothing.", async () => {
    const { cost } = await charged(() => post({ model: "silent", input: [5, 6, 7, 8] }));
    expect(cost).toBe(4);
  });
});

test.each(FAILING)("The hold is released if the upstream's answer is %s.", async (model) => {
  const { answer, cost } = await charged(() => post({ model, input: ["a", "b"] }));
  expect([answer.status, answer.body.error?.code]).toEqual([502, "upstream_error"]);
  expect(cost).toBe(0);
});

test("The hold is released if the vectors do not have the requested length.", async () => {
  const { answer, cost } = await charged(() => post({ model: "other-length", input: "a", dimensions: 3 }));
  expect([answer.status, cost]).toEqual([502, 0]);
});

test("Another route answers where the first one fails.", async () => {
  const { answer, cost } = await charged(() => post({ model: "second", input: "a" }));
  expect([answer.status, answer.headers.get("x-tollgate-route"), cost]).toEqual([200, "up/plain", 7]);
});

test("A request without enough credits is refused before the upstream is called.", async () => {
  const poor = await makeOrganization(service, "5");
  const before = upstream.requests.length;
  const { status, body } = await post({ model: "plain", input: "a long text" }, {}, poor.token);
  expect([status, body.error?.code]).toEqual([402, "insufficient_credits"]);
  expect(upstream.requests.length).toBe(before);
});

test("A token without the scope is refused.", async () => {
  const { token } = await makeToken(service, organization.id, { scopes: ["models:read"] });
  const { status, body } = await post({ model: "plain", input: "a" }, {}, token);
  expect([status, body.error?.code]).toEqual([403, "insufficient_scope"]);
});

test("A client that disconnects pays for the counted input, once.", async () => {
  const own = await makeOrganization(service, "100");
  const before = upstream.requests.length;
  const leaving = new AbortController();
  const body = { model: "mute", input: "one two three" };
  const sent = send(service, "/v1/embeddings", own.token, body, { signal: leaving.signal }).catch(() => "left");
  await expect.poll(() => upstream.requests.length).toBe(before + 1);
  leaving.abort();
  expect(await sent).toBe("left");
  await upstream.requests[before]?.closed;
  await expect.poll(() => usageOf(service, own.token)).toMatchObject({ creditsHeld: 0, creditsUsed: 3 });
});

describe("A repeated request with an Idempotency-Key", () => {
  const keyed = (key: string, body: object) => post(body, { headers: { "idempotency-key": key } });

  test("gets the first response again, and is charged once.", async () => {
    const body = { model: "plain", input: ["a", "b"], encoding_format: "base64" };
    const { answer, cost } = await charged(async () => [await keyed("one", body), await keyed("one", body)] as const);
    expect(cost).toBe(7);
    expect(answer[1].body).toEqual(answer[0].body);
    expect(answer[1].headers.get("x-tollgate-idempotent-replay")).toBe("true");
    expect(answer[1].headers.get("x-credits-charged")).toBe("7");
    expect((await keyed("one", { ...body, input: ["a", "c"] })).status).toBe(422);
  });

  test("is refused where the first response was too long to store.", async () => {
    const body = { model: "silent", input: Array.from({ length: 2_000 }, () => "a"), dimensions: 200 };
    expect((await keyed("long", body)).status).toBe(200);
    const repeated = await keyed("long", body);
    expect([repeated.status, repeated.body.error?.code]).toEqual([409, "idempotency_interrupted"]);
  });
});

describe("A wrong request names the field:", () => {
  test.each([
    [{ model: "plain" }, "missing_required_parameter", "input"],
    [{ input: "a" }, "missing_required_parameter", "model"],
    [{ model: "plain", input: "" }, "invalid_value", "input"],
    [{ model: "plain", input: [] }, "invalid_value", "input"],
    [{ model: "plain", input: ["a", ""] }, "invalid_value", "input[1]"],
    [{ model: "plain", input: ["a", 1] }, "invalid_type", "input[1]"],
    [{ model: "plain", input: [1, "a"] }, "invalid_type", "input[1]"],
    [{ model: "plain", input: [[1], [-1]] }, "invalid_value", "input[1][0]"],
    [{ model: "plain", input: [[1], []] }, "invalid_value", "input[1]"],
    [{ model: "plain", input: { text: "a" } }, "invalid_type", "input"],
    [{ model: "plain", input: Array.from({ length: 2_049 }, () => "a") }, "invalid_value", "input"],
    [{ model: "plain", input: "a", dimensions: 0 }, "invalid_value", "dimensions"],
    [{ model: "plain", input: "a", encoding_format: "hex" }, "invalid_value", "encoding_format"],
    [{ model: "plain", input: "a", user: 1 }, "invalid_type", "user"],
    [{ model: "plain", input: "a", input_type: "query" }, "unsupported_value", "input_type"],
    [{ model: "sandbox/embed", input: "a", dimensions: 257 }, "invalid_value", "dimensions"],
    [{ model: "short", input: ["a", "x".repeat(200)] }, "context_length_exceeded", "input[1]"],
    [{ model: "talker", input: "a" }, "unsupported_value", "model"],
    [{ model: "sandbox/echo", input: "a" }, "unsupported_value", "model"],
  ])("%j", async (body, code, param) => {
    const before = upstream.requests.length;
    const answer = await post(body);
    expect([answer.status, answer.body.error?.code, answer.body.error?.param]).toEqual([400, code, param]);
    expect(upstream.requests.length).toBe(before);
  });

  test("A model that does not exist is not found.", async () => {
    const { status, body } = await post({ model: "none", input: "a" });
    expect([status, body.error?.code]).toEqual([404, "model_not_found"]);
  });

  test("An embedding model does not chat.", async () => {
    const messages = [{ role: "user", content: "a" }];
    const response = await send(service, "/v1/chat/completions", organization.token, { model: "plain", messages });
    const { error } = (await response.json()) as { error: { code: string; param: string } };
    expect([response.status, error.code, error.param]).toEqual([400, "unsupported_value", "model"]);
  });
});

test("Guests of the playground create embeddings with its models alone.", async () => {
  const { token } = await makeToken(service, "org_playground");
  const allowed = await post({ model: "sandbox/embed", input: "a" }, {}, token);
  const other = await post({ model: "plain", input: "a" }, {}, token);
  expect([allowed.status, other.status, other.body.error?.code]).toEqual([200, 403, "model_not_allowed"]);
});

test("Embeddings appear in the request log and the usage by model, and their model in the list of models.", async () => {
  const own = await makeOrganization(service, "100");
  await post({ model: "plain", input: "a" }, {}, own.token);
  await post({ model: "broken", input: "a" }, {}, own.token);
  const requests = await operator(service).call<{ data: object[] }>("GET", `/requests?organization_id=${own.id}`);
  expect(requests.body.data).toMatchObject([
    { model: "broken", status: "failed", charged: 0 },
    { model: "plain", status: "complete", charged: 7 },
  ]);
  const overview = await operator(service).call("GET", `/overview?organization_id=${own.id}`);
  expect(overview.body).toMatchObject({
    totals: { requests: 2, errors: 1, spent: 7, input_tokens: 7, output_tokens: 0 },
    top_models: [
      { model: "plain", spent: 7 },
      { model: "broken", spent: 0 },
    ],
  });
  const models = await send(service, "/v1/models/short", own.token);
  expect(await models.json()).toMatchObject({
    ...{ category: "embedding", capabilities: ["embeddings"], context_window: 4, max_output_tokens: 0, dimensions: 4 },
    pricing: "1000000.00 credits per million input tokens",
  });
});
