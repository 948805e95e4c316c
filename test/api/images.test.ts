import { inflateSync } from "node:zlib";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import {
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  usageOf,
} from "../support/service.ts";
import { chargedIn, startTaskService } from "../support/tasks.ts";
import { type Behaviour, sendJson, type Upstream } from "../support/upstream.ts";

/** A credit for each output token, so that a charge shows the counted tokens. */
const BY_TOKEN = { input: 1_000_000, inputImage: 2_000_000, output: 1_000_000 };
const ONE = { input: 0, perImage: 1 };
const BY_IMAGE = { input: 0, perImage: 5, images: { "1024x1024": 1, "hd/1024x1024": 2, "hd/1792x1024": 3 } };
/** Output tokens of an image at most. */
const TOKENS_MOST = 100;

const image = (index: number) => ({ b64_json: Buffer.from(`image ${index}`).toString("base64") });
/** Answers with as many images as are asked for, changed by `fields`. */
const making =
  (fields: object = {}): Behaviour =>
  ({ body, response }) => {
    const data = Array.from({ length: Number(body.n ?? 1) }, (_, index) => image(index));
    sendJson(response, 200, { created: 1, data, ...fields });
  };
const usage = (fields: object = {}) => ({
  usage: {
    ...{ input_tokens: 12, output_tokens: 50, total_tokens: 62 },
    ...{ input_tokens_details: { text_tokens: 10, image_tokens: 2 }, ...fields },
  },
});
const TOO_LONG = { data: [{ b64_json: "A".repeat(65 * 1024 * 1024) }] };

const BEHAVIOURS: Record<string, Behaviour> = {
  plain: making(),
  reporting: making(usage()),
  excessive: making(usage({ output_tokens: 9_999_999 })),
  negative: making(usage({ output_tokens: -1 })),
  nonsense: making({ usage: { input_tokens: "many", output_tokens: null } }),
  large: making({ size: "1792x1024", quality: "hd" }),
  low: making({ quality: "low" }),
  generous: making({ data: [image(0), image(1), image(2)] }),
  stingy: making({ data: [image(0)] }),
  addresses: making({ data: [{ url: "https://images.example/1.png", revised_prompt: "a red cat" }] }),
  broken: ({ response }) => sendJson(response, 500, { error: { message: "down" } }),
  busy: ({ response }) => sendJson(response, 429, { error: { message: "slow down" } }),
  empty: making({ data: [] }),
  "no-image": making({ data: [{ b64_json: 7 }] }),
  "not-json": ({ response }) => void response.writeHead(200, { "content-type": "application/json" }).end("{"),
  "too-long": ({ response }) => sendJson(response, 200, TOO_LONG),
  heavy: making({ data: [{ b64_json: "A".repeat(2 * 1024 * 1024) }] }),
  mute: () => {},
};
const FAILING = ["broken", "empty", "no-image", "not-json", "too-long"];

let upstream: Upstream;
let service: RunningService;
let organization: Organization;
let end: () => Promise<void>;

beforeAll(async () => {
  const model = (id: string, price: object, routes = [id], more: object = {}) => ({
    ...{ id, category: "image", price, ...more },
    routes: routes.map((route) => ({ provider: "up", model: route })),
  });
  const models = [
    ...Object.keys(BEHAVIOURS).map((id) => model(id, ONE)),
    ...["reporting", "excessive", "negative", "nonsense"].map((id) =>
      model(`${id}-tokens`, BY_TOKEN, [id], { maxOutputTokens: TOKENS_MOST }),
    ),
    ...["plain", "large", "low"].map((id) => model(`${id}-sized`, BY_IMAGE, [id])),
    model("listed", { input: 0, images: { "1024x1024": 1, hd: 4 } }, ["plain"]),
    model("second", ONE, ["broken", "plain"]),
    { ...model("foreign", ONE), routes: [{ provider: "foreign", model: "gpt-image-1" }] },
    { ...model("other-wire", ONE), routes: [{ provider: "claude", model: "claude" }] },
    { id: "talker", price: { input: 1, output: 1 }, routes: [{ provider: "up", model: "talker" }] },
  ];
  const started = await startTaskService(
    BEHAVIOURS,
    (foreign) =>
      foreign.onImage("a cat", {
        images: [{ b64Json: "aW1hZ2U=", revisedPrompt: "a red cat" }, { b64Json: "b3RoZXI=" }],
      }),
    models,
  );
  ({ upstream, service, organization, end } = started);
});

afterAll(() => end?.());

interface Answer {
  data: { b64_json?: string; url?: string; revised_prompt?: string }[];
  usage: { images: number; cost: number } & Record<string, unknown>;
  error?: { code: string; param: string | null; message: string };
  [field: string]: unknown;
}

async function post(body: object, options: RequestInit = {}, token = organization.token) {
  const response = await send(service, "/v1/images/generations", token, body, options);
  return { status: response.status, headers: response.headers, body: (await response.json()) as Answer };
}

const charged = <T>(run: () => Promise<T>) => chargedIn(service, organization, run);

describe("Images through the openai package:", () => {
  const client = () => new OpenAI({ apiKey: organization.token, baseURL: service.baseUrl, maxRetries: 0 });

  test("An independent upstream's images are passed on, and charged by their number.", async () => {
    const { answer, cost } = await charged(() =>
      client().images.generate({ model: "foreign", prompt: "a cat", n: 2, response_format: "b64_json" }),
    );
    expect(answer.data).toEqual([{ b64_json: "aW1hZ2U=", revised_prompt: "a red cat" }, { b64_json: "b3RoZXI=" }]);
    expect(answer).toMatchObject({ model: "foreign", organization_id: organization.id, usage: { images: 2, cost: 2 } });
    expect(cost).toBe(2);
  });

  test("The fields of a request reach the upstream, and its usage is returned and charged.", async () => {
    const before = upstream.requests.length;
    const fields = { prompt: "a cat", size: "1024x1536", quality: "high", background: "transparent" } as const;
    const more = { output_format: "webp", output_compression: 50, moderation: "low", user: "u" } as const;
    const { answer, cost } = await charged(() =>
      client().images.generate({ model: "reporting-tokens", ...fields, ...more }),
    );
    expect(upstream.requests[before]?.body).toEqual({ model: "reporting", ...fields, ...more });
    expect(answer.usage).toEqual({
      ...{ images: 1, input_tokens: 12, output_tokens: 50, total_tokens: 62, cost: 64 },
      input_tokens_details: { text_tokens: 10, image_tokens: 2 },
    });
    expect(cost).toBe(10 + 2 * 2 + 50);
  });

  test("The sandbox answers with a picture.", async () => {
    const options = { model: "sandbox/image", prompt: "a cat", n: 2 };
    const { answer, cost } = await charged(() => client().images.generate(options));
    expect([answer.data?.length, cost]).toEqual([2, expect.closeTo(0.08, 6)]);
    const png = Buffer.from(answer.data?.[0]?.b64_json ?? "", "base64");
    expect(png.subarray(1, 4).toString()).toBe("PNG");
    const at = png.indexOf("IDAT");
    const rows = inflateSync(png.subarray(at + 4, at + 4 + png.readUInt32BE(at - 4)));
    // A row of 16 pixels of one bit, after its filter.
    expect(rows.length).toBe(16 * (1 + 2));
  });
});

test("An address is the provider's, and is passed on.", async () => {
  const { body } = await post({ model: "addresses", prompt: "a cat" });
  expect(body.data).toEqual([{ url: "https://images.example/1.png", revised_prompt: "a red cat" }]);
});

test("An answer has the headers of a completion.", async () => {
  const { status, headers } = await post({ model: "plain", prompt: "a cat", colour: "red", stream: false });
  expect([status, headers.get("x-credits-charged"), headers.get("x-tollgate-route")]).toEqual([200, "1", "up/plain"]);
  expect(headers.get("x-tollgate-ignored")).toBe("colour");
  for (const name of ["x-request-id", "x-credits-available", "ratelimit"]) {
    expect(headers.get(name), name).not.toBeNull();
  }
});

describe("The charge is", () => {
  test.each([
    ["the price of its size and quality", "plain-sized", { size: "1792x1024", quality: "hd" }, 3],
    ["the price of its size if its quality has none", "plain-sized", { size: "1024x1024", quality: "low" }, 1],
    ["the dearest of a size if nobody says the quality", "plain-sized", { size: "1024x1024" }, 2],
    ["that of the stated size and the quality in the answer", "low-sized", { size: "1024x1024" }, 1],
    ["perImage for a size without a price", "plain-sized", { size: "512x512", quality: "hd" }, 5],
    ["the highest possible price if nobody says what was made", "plain-sized", { n: 2 }, 10],
    ["the price of what the provider made", "large-sized", {}, 3],
    ["the highest of the stated prices without perImage", "listed", { size: "512x512", quality: "low" }, 4],
    ["the number of images in the answer if it has fewer", "stingy", { n: 3 }, 1],
    ["the requested number of images if the answer has more", "generous", { n: 2 }, 2],
    ["the bound of the tokens if the report is above it", "excessive-tokens", {}, 10 + 2 * 2 + TOKENS_MOST],
  ])("%s.", async (_name, model, fields, credits) => {
    const { answer, cost } = await charged(() => post({ model, prompt: "a cat", ...fields }));
    expect([answer.status, answer.body.usage.cost, cost]).toEqual([200, credits, credits]);
  });

  test.each(["negative-tokens", "nonsense-tokens"])("counted if the report is not plausible: %s.", async (model) => {
    const { answer, cost } = await charged(() => post({ model, prompt: "one two three" }));
    expect(answer.status).toBe(200);
    expect(cost).toBeGreaterThan(3);
    expect(cost).toBeLessThan(20);
  });
});

describe("The hold is", () => {
  test.each([
    ["that of the stated size and quality", { size: "1792x1024", quality: "hd", n: 2 }, "plain-sized", 6],
    ["that of the highest possible price", { quality: "hd" }, "plain-sized", 5],
    ["that of the dearest entry where one surely names the image", { size: "1024x1024" }, "plain-sized", 2],
    ["the tokens of all images", { n: 3 }, "reporting-tokens", 3 * TOKENS_MOST + 2 * (5 + 8 + 256)],
  ])("%s.", async (_name, fields, model, credits) => {
    const poor = await makeOrganization(service, String(credits - 1));
    const before = upstream.requests.length;
    const { status, body } = await post({ model, prompt: "a cat", ...fields }, {}, poor.token);
    expect([status, body.error?.code]).toEqual([402, "insufficient_credits"]);
    expect(body.error).toMatchObject({ credits_required: credits });
    expect(upstream.requests.length).toBe(before);
    const enough = await makeOrganization(service, String(credits));
    expect((await post({ model, prompt: "a cat", ...fields }, {}, enough.token)).status).toBe(200);
  });

  test("at most x-tollgate-max-cost.", async () => {
    const headers = { "x-tollgate-max-cost": "1.5" };
    const { status, body } = await post({ model: "plain", prompt: "a cat", n: 2 }, { headers });
    expect([status, body.error?.code]).toEqual([400, "max_cost_exceeded"]);
  });

  test.each(FAILING)("released if the upstream's answer is %s.", async (model) => {
    const { answer, cost } = await charged(() => post({ model, prompt: "a cat" }));
    expect([answer.status, answer.body.error?.code]).toEqual([502, "upstream_error"]);
    expect(cost).toBe(0);
  });

  test("released if the upstream is overloaded.", async () => {
    const { answer, cost } = await charged(() => post({ model: "busy", prompt: "a cat" }));
    expect([answer.status, answer.body.error?.code, cost]).toEqual([503, "overloaded", 0]);
  });
});

test("Another route answers where the first one fails.", async () => {
  const { answer, cost } = await charged(() => post({ model: "second", prompt: "a cat" }));
  expect([answer.status, answer.headers.get("x-tollgate-route"), cost]).toEqual([200, "up/plain", 1]);
});

test("A client that disconnects pays for the images that it asked for, once.", async () => {
  const own = await makeOrganization(service, "100");
  const before = upstream.requests.length;
  const leaving = new AbortController();
  const body = { model: "mute", prompt: "a cat", n: 3 };
  const sent = send(service, "/v1/images/generations", own.token, body, { signal: leaving.signal }).catch(() => "left");
  await expect.poll(() => upstream.requests.length).toBe(before + 1);
  leaving.abort();
  expect(await sent).toBe("left");
  await upstream.requests[before]?.closed;
  await expect.poll(() => usageOf(service, own.token)).toMatchObject({ creditsHeld: 0, creditsUsed: 3 });
});

describe("A repeated request with an Idempotency-Key", () => {
  const keyed = (key: string, body: object) => post(body, { headers: { "idempotency-key": key } });

  test("gets the first response again, and is charged once.", async () => {
    const body = { model: "large-sized", prompt: "a cat", n: 2 };
    const { answer, cost } = await charged(async () => [await keyed("one", body), await keyed("one", body)] as const);
    expect(cost).toBe(6);
    expect(answer[1].body).toEqual(answer[0].body);
    expect(answer[1].headers.get("x-tollgate-idempotent-replay")).toBe("true");
    expect((await keyed("one", { ...body, n: 1 })).status).toBe(422);
  });

  test("is refused where the first response was too long to store.", async () => {
    const body = { model: "heavy", prompt: "a cat" };
    expect((await keyed("long", body)).status).toBe(200);
    const repeated = await keyed("long", body);
    expect([repeated.status, repeated.body.error?.code]).toEqual([409, "idempotency_interrupted"]);
  });
});

describe("A wrong request names the field:", () => {
  test.each([
    [{ model: "plain" }, "missing_required_parameter", "prompt"],
    [{ prompt: "a" }, "missing_required_parameter", "model"],
    [{ model: "plain", prompt: "" }, "invalid_value", "prompt"],
    [{ model: "plain", prompt: "x".repeat(32_001) }, "invalid_value", "prompt"],
    [{ model: "plain", prompt: "a", n: 0 }, "invalid_value", "n"],
    [{ model: "plain", prompt: "a", n: 11 }, "invalid_value", "n"],
    [{ model: "plain", prompt: "a", size: "large" }, "invalid_value", "size"],
    [{ model: "plain", prompt: "a", quality: "best" }, "invalid_value", "quality"],
    [{ model: "plain", prompt: "a", output_format: "svg" }, "invalid_value", "output_format"],
    [{ model: "plain", prompt: "a", stream: true }, "unsupported_value", "stream"],
    [{ model: "plain", prompt: "a", partial_images: 2 }, "unsupported_value", "partial_images"],
    [{ model: "talker", prompt: "a" }, "unsupported_value", "model"],
    [{ model: "sandbox/embed", prompt: "a" }, "unsupported_value", "model"],
    [{ model: "other-wire", prompt: "a" }, "unsupported_value", "model"],
  ])("%j", async (body, code, param) => {
    const before = upstream.requests.length;
    const answer = await post(body);
    expect(answer.status).toBe(400);
    expect([answer.body.error?.code, answer.body.error?.param]).toEqual([code, param]);
    expect(upstream.requests.length).toBe(before);
  });

  test.each([
    ["/v1/chat/completions", { messages: [{ role: "user", content: "a" }] }],
    ["/v1/embeddings", { input: "a" }],
  ])("An image model is refused at %s, which names its endpoint.", async (path, body) => {
    const response = await send(service, path, organization.token, { model: "plain", ...body });
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    expect([response.status, error.code]).toEqual([400, "unsupported_value"]);
    expect(error.message).toContain("/v1/images/generations");
  });
});

test("A token without the scope is refused, and guests make images with the playground's models alone.", async () => {
  const { token } = await makeToken(service, organization.id, { scopes: ["models:read"] });
  expect((await post({ model: "plain", prompt: "a" }, {}, token)).status).toBe(403);
  const { token: guest } = await makeToken(service, "org_playground");
  const allowed = await post({ model: "sandbox/image", prompt: "a" }, {}, guest);
  const other = await post({ model: "plain", prompt: "a" }, {}, guest);
  expect([allowed.status, other.status, other.body.error?.code]).toEqual([200, 403, "model_not_allowed"]);
});

test("Images appear in the request log with their number and price, and their model in the list of models.", async () => {
  const own = await makeOrganization(service, "100");
  await post({ model: "large-sized", prompt: "a cat", n: 2 }, {}, own.token);
  const call = <Body>(path: string) => operator(service).call<Body>("GET", path);
  const { body } = await call<{ data: { id: string }[] }>(`/requests?organization_id=${own.id}`);
  expect(body.data).toMatchObject([{ model: "large-sized", status: "complete", charged: 6 }]);
  const detail = await call(`/requests/${body.data[0]?.id}`);
  expect(detail.body).toMatchObject({
    ...{ tokens: { images: 2 }, prices: { images: 3 } },
    price_tier: { service_tier: "hd/1792x1024" },
  });
  const statement = await call<{ data: object[] }>(`/organizations/${own.id}/statement`);
  expect(statement.body.data).toMatchObject([{ kind: "grant" }, { kind: "charge", tokens: { images: 2 } }]);
  const models = await send(service, "/v1/models/listed", own.token);
  expect(await models.json()).toMatchObject({
    ...{ category: "image", capabilities: ["images"], pricing: "4.00 credits per image" },
    ...{ pricing_details: { images: 4 } },
  });
});
