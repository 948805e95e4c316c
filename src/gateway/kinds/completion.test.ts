import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { statedOutput } from "../../api/chat/decode.ts";
import { type ChatCompletionRequest, MAX_TOKENS_DEFAULT } from "../../api/chat/request.ts";
import type { Capability } from "../../api/model.ts";
import type { CatalogModel } from "../../catalog/model.ts";
import { FREE } from "../../credits/price.ts";
import { unsupportedField } from "../../errors.ts";
import type { Provider } from "../../providers/provider.ts";
import { fittingOutputTokens, refuseAboveModel, refuseAboveSetting, wantedOutputTokens } from "../output-bound.ts";
import { inOrder } from "../plan.ts";
import { fitToModel, forUpstream, routesFor } from "./completion.ts";

const route = { providerId: "p", model: "upstream-name", prices: FREE };
const modelOf = (fields: Partial<CatalogModel> = {}): CatalogModel => ({
  id: "m",
  name: "M",
  ownedBy: "somebody",
  category: "chat",
  description: "A model.",
  capabilities: new Set<Capability>(["chat", "streaming", "instructions"]),
  contextWindow: 1000,
  maxOutputTokens: 4096,
  cutoffDate: "2026-01-31",
  cutoffBasis: "stated",
  created: 0,
  deprecatedSince: null,
  shutdownDate: null,
  replacement: null,
  playground: false,
  refusedParameters: new Set(),
  imageTokensMax: 1000,
  prices: FREE,
  routes: [route],
  ...fields,
});
const request = (fields: Partial<ChatCompletionRequest> = {}): ChatCompletionRequest => ({
  model: "m",
  messages: [{ role: "user", content: "hello" }],
  ...fields,
});
const tool = { type: "function" as const, function: { name: "f" } };
const image = [{ role: "user" as const, content: [{ type: "image_url" as const, image_url: { url: "data:," } }] }];

describe("a field that the model does not take", () => {
  test.each([
    ["tools", { tools: [tool] }, "tools"],
    ["structured output", { response_format: { type: "json_object" as const } }, "response_format"],
    ["images", { messages: image }, "messages[0].content[0]"],
    ["logprobs", { logprobs: true }, "logprobs"],
  ])("A request with %s is refused, naming the model's capabilities.", (_name, fields, param) => {
    const model = modelOf({ refusedParameters: new Set(["logprobs"]) });
    expect(() => fitToModel(request(fields), model)).toThrow(
      expect.objectContaining({
        code: "unsupported_value",
        param,
        message: expect.stringContaining("chat, streaming"),
      }),
    );
  });

  test("A field with OpenAI's default value is removed silently.", () => {
    const model = modelOf({ refusedParameters: new Set(["temperature", "top_p", "logprobs", "presence_penalty"]) });
    const { request: fitted, ignored } = fitToModel(
      request({
        temperature: 1,
        top_p: 1,
        logprobs: false,
        presence_penalty: 0,
        tools: [],
        response_format: { type: "text" },
      }),
      model,
    );
    expect(ignored).toEqual([]);
    expect(fitted).toEqual(request());
  });

  test("A hint is removed and named.", () => {
    const model = modelOf({ refusedParameters: new Set(["temperature", "seed"]) });
    const { request: fitted, ignored } = fitToModel(request({ temperature: 0.5, seed: 7, user: "u" }), model);
    expect(ignored).toEqual(["temperature", "seed"]);
    expect(fitted).toEqual(request({ user: "u" }));
  });

  test("Fields that the model takes are unchanged.", () => {
    const model = modelOf({ capabilities: new Set<Capability>(["chat", "tools", "vision", "structured_output"]) });
    const asked = request({ tools: [tool], messages: image, temperature: 1, response_format: { type: "json_object" } });
    expect(fitToModel(asked, model)).toEqual({ request: asked, ignored: [] });
  });
});

test("A request is sent upstream with its instructions and the upstream's own model name.", () => {
  const asked = request({
    instructions: "Be brief.",
    max_completion_tokens: 7,
    metadata: { a: "b" },
    n: 1,
    stream: true,
  });
  expect(forUpstream(asked, route, 5)).toEqual({
    model: "upstream-name",
    instructions: "Be brief.",
    messages: [{ role: "user", content: "hello" }],
    max_tokens: 5,
    stream: true,
  });
});

describe("an image that is sent by its address", () => {
  const NO_BOUND = statedOutput(request());
  const at = (url: string) =>
    request({
      messages: [
        { role: "user", content: "look" },
        { role: "user", content: [{ type: "image_url", image_url: { url } }] },
      ],
    });
  const callOf = (url: string) => ({ request: at(url), output: NO_BOUND, native: undefined });
  const route = (providerId: string) => ({ providerId, model: "upstream-name", prices: FREE });
  const model = modelOf({ routes: [route("private"), route("public")] });
  const providerOf = (id: string, isPrivate: boolean): Provider => ({
    id,
    isPrivate,
    complete: () => Promise.reject(new Error("not called")),
    close: async () => undefined,
  });
  const providers = new Map([
    ["private", providerOf("private", true)],
    ["public", providerOf("public", false)],
  ]);

  test("An image address is sent to public upstreams only.", () => {
    const routesOf = (url: string) => routesFor({ providers }, model, callOf(url)).routes;
    expect(routesOf("https://example.com/a.png")).toEqual([route("public")]);
    expect(routesOf("data:image/png;base64,AAAA")).toEqual(model.routes);
  });

  test("An image address is refused where every upstream is private.", () => {
    const privateModel = modelOf({ routes: [route("private")] });
    expect(() => routesFor({ providers }, privateModel, callOf("https://example.com/a.png"))).toThrow(
      expect.objectContaining({
        param: "messages[1].content[0].image_url.url",
        message: expect.stringContaining("data:image/…;base64,…"),
      }),
    );
  });
});

const tokens = fc.integer({ min: 1, max: 1_000_000 });
const setting = fc.oneof(tokens, fc.constantFrom("model" as const, "clamp" as const));
const limitsOfModel = fc.record({ maxOutputTokens: tokens, contextWindow: tokens });
const estimate = fc
  .record({ likely: tokens, factor: fc.integer({ min: 1, max: 8 }) })
  .map(({ likely, factor }) => ({ least: Math.ceil(likely / 4), likely, likelyBesideText: 7, most: likely * factor }))
  .map((bounds) => ({ ...bounds, hasMedia: false, hasHourCache: false, choices: 1 }));

type Limits = Pick<CatalogModel, "maxOutputTokens" | "contextWindow">;
type Prompt = typeof estimate extends fc.Arbitrary<infer Value> ? Value : never;
const defaultOf = (completionMaxTokens: number | "model" | "clamp", limits: Limits, prompt: Prompt) =>
  fittingOutputTokens(wantedOutputTokens({ completionMaxTokens }, limits, undefined), false, limits, prompt);
const lowered = (asked: number, limits: Limits, prompt: Prompt) =>
  fittingOutputTokens(wantedOutputTokens({ completionMaxTokens: "clamp" }, limits, asked), true, limits, prompt);

describe("the output bound of a request that states none", () => {
  test("The bound never exceeds the setting, the model's maximum or the context beside what the prompt has for certain.", () => {
    fc.assert(
      fc.property(setting, limitsOfModel, estimate, (completionMaxTokens, limits, prompt) => {
        const found = defaultOf(completionMaxTokens, limits, prompt);
        expect(found).toBeGreaterThanOrEqual(1);
        expect(found).toBeLessThanOrEqual(limits.maxOutputTokens);
        if (typeof completionMaxTokens === "number") expect(found).toBeLessThanOrEqual(completionMaxTokens);
        expect(found).toBeLessThanOrEqual(Math.max(16, limits.contextWindow - prompt.least));
      }),
    );
  });

  test("The bound is by default the default or the model's maximum where twice the likely prompt leaves room for it.", () => {
    fc.assert(
      fc.property(limitsOfModel, estimate, (limits, prompt) => {
        const most = Math.min(MAX_TOKENS_DEFAULT, limits.maxOutputTokens);
        const found = defaultOf(MAX_TOKENS_DEFAULT, limits, prompt);
        if (limits.contextWindow - 2 * prompt.likely >= most) expect(found).toBe(most);
        expect(found).toBeGreaterThanOrEqual(Math.min(most, limits.contextWindow - 2 * prompt.likely));
      }),
    );
  });

  test("The bound is accepted as a stated bound, by the setting and by the model.", () => {
    fc.assert(
      fc.property(setting, limitsOfModel, estimate, (completionMaxTokens, limits, prompt) => {
        const max_tokens = defaultOf(completionMaxTokens, limits, prompt);
        const output = statedOutput(request({ max_tokens }));
        expect(() => refuseAboveSetting({ completionMaxTokens }, output)).not.toThrow();
        expect(() => refuseAboveModel({ completionMaxTokens }, output, limits)).not.toThrow();
      }),
    );
  });
});

test("A stated bound is refused exactly where it is above the limit of its field.", () => {
  fc.assert(
    fc.property(setting, limitsOfModel, tokens, (completionMaxTokens, limits, asked) => {
      const isRefused = (fields: Partial<ChatCompletionRequest>) => {
        const output = statedOutput(request(fields));
        try {
          refuseAboveSetting({ completionMaxTokens }, output);
          refuseAboveModel({ completionMaxTokens }, output, limits);
          return false;
        } catch {
          return true;
        }
      };
      const isAboveSetting = typeof completionMaxTokens === "number" && asked > completionMaxTokens;
      const isAboveModel = completionMaxTokens !== "clamp" && asked > limits.maxOutputTokens;
      expect(isRefused({ max_tokens: asked })).toBe(isAboveSetting || isAboveModel);
      expect(isRefused({ max_completion_tokens: asked })).toBe(false);
    }),
  );
});

test("A lowered bound is at most the model's maximum, leaves room for the prompt, and is unchanged where it fits.", () => {
  fc.assert(
    fc.property(limitsOfModel, estimate, tokens, (limits, prompt, asked) => {
      const found = lowered(asked, limits, prompt);
      const most = Math.min(asked, limits.maxOutputTokens);
      const room = limits.contextWindow - prompt.likely;
      expect(found).toBeGreaterThanOrEqual(Math.min(most, 16));
      expect(found).toBeLessThanOrEqual(most);
      if (room >= 16) expect(found).toBeLessThanOrEqual(room);
      if (most <= room && room >= 16) expect(found).toBe(most);
    }),
  );
});

test("A bound is not lowered for a file whose bytes are more than the context window, because its tokens may be few.", () => {
  const file = { least: 10, likely: 200_000, likelyBesideText: 200_000, most: 400_000, hasMedia: true };
  const limits = { maxOutputTokens: 64_000, contextWindow: 200_000 };
  const prompt = { ...file, hasHourCache: false, choices: 1 };
  expect(lowered(32_000, limits, prompt)).toBe(32_000);
  expect(defaultOf(MAX_TOKENS_DEFAULT, limits, prompt)).toBe(MAX_TOKENS_DEFAULT);
  expect(lowered(32_000, limits, { ...prompt, textTokens: 150_000 } as typeof prompt)).toBe(32_000);
});

test("A prompt with media and no stated bound has at most the default beyond the cautious room, counted or not.", () => {
  const limits = { maxOutputTokens: 100_000, contextWindow: 200_000 };
  const file = { least: 10, likely: 110_000, likelyBesideText: 100_000, most: 400_000 };
  const prompt = { ...file, hasMedia: true, hasHourCache: false, choices: 1 };
  for (const counted of [prompt, { ...prompt, textTokens: 10_000 } as typeof prompt]) {
    expect(defaultOf("model", limits, counted)).toBe(MAX_TOKENS_DEFAULT);
    expect(lowered(100_000, limits, counted)).toBe(100_000);
  }
  const small = { ...prompt, likely: 30_000, likelyBesideText: 20_000, textTokens: 10_000 };
  expect(defaultOf("model", { ...limits, maxOutputTokens: 190_000 }, small)).toBe(200_000 - 10_800 - 40_000);
});

test("A max_tokens above the model's maximum is refused.", () => {
  const model = modelOf({ maxOutputTokens: 2048 });
  const refuse = (max_tokens: number) =>
    refuseAboveModel({ completionMaxTokens: MAX_TOKENS_DEFAULT }, statedOutput(request({ max_tokens })), model);
  expect(() => refuse(2049)).toThrow(/at most 2048 completion tokens/);
  expect(() => refuse(2048)).not.toThrow();
});

test("A search is refused on a route whose hold does not cover its results.", () => {
  const providers = new Map([["up", {} as Provider]]);
  const search = { request: request({ web_search_options: {} }), output: statedOutput(request()), native: undefined };
  const on = (route: object) => modelOf({ routes: [{ ...routeOf("a"), ...route }] });
  expect(routesFor({ providers }, on({ runsTools: true }), search).routes).toHaveLength(1);
  expect(() => routesFor({ providers }, on({}), search)).toThrow(
    expect.objectContaining({ code: "unsupported_value", param: "web_search_options" }),
  );
});

test("A text completion goes only to upstreams of its own wire that take its fields.", () => {
  const refusal = unsupportedField("n", "this model does not support 'n'");
  const providerOf = (convert: Provider["convert"]) => ({ nativeWire: "completions", convert }) as Provider;
  const native = { wire: "completions" as const, body: {}, headers: {} };
  const call = { request: request({ n: 2 }), output: statedOutput(request()), native };
  const providers = new Map([
    ["p", providerOf((sent) => (sent.n === undefined ? undefined : refusal))],
    ["up", providerOf(() => undefined)],
  ]);
  expect(routesFor({ providers }, modelOf({ routes: [route, routeOf("a")] }), call).routes).toEqual([routeOf("a")]);
  expect(() => routesFor({ providers }, modelOf(), call)).toThrow(
    expect.objectContaining({ code: "unsupported_value", param: "n" }),
  );
});

const routeOf = (model: string, weight?: number) => ({
  providerId: "up",
  model,
  prices: FREE,
  ...(weight !== undefined && { weight }),
});

/** Numbers from 0 up to 1, the same every time: a linear congruential generator (Numerical Recipes). */
function seeded(): () => number {
  let state = 4711;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

test("Routes without weights keep their order.", () => {
  const routes = [routeOf("a"), routeOf("b"), routeOf("c")];
  const never = () => {
    throw new Error("No random number is needed");
  };
  expect(inOrder(routes, never)).toBe(routes);
});

test("Each route comes first in proportion to its weight, and none is missing.", () => {
  const routes = [routeOf("a", 70), routeOf("b", 20), routeOf("c", 10)];
  const random = seeded();
  const first = new Map<string, number>();
  for (let count = 0; count < 20_000; count += 1) {
    const order = inOrder(routes, random).map(({ model }) => model);
    expect(order.toSorted()).toEqual(["a", "b", "c"]);
    first.set(order[0] ?? "", (first.get(order[0] ?? "") ?? 0) + 1);
  }
  expect((first.get("a") ?? 0) / 20_000).toBeCloseTo(0.7, 1);
  expect((first.get("b") ?? 0) / 20_000).toBeCloseTo(0.2, 1);
  expect((first.get("c") ?? 0) / 20_000).toBeCloseTo(0.1, 1);
});

test("Routes that a request prefers come first, in the order of the others.", () => {
  const routes = ["a", "b", "c", "d"].map((model) => ({ ...route, model }));
  const order = inOrder(
    routes,
    () => 0,
    ({ model }) => model === "b" || model === "d",
  );
  expect(order.map(({ model }) => model)).toEqual(["b", "d", "a", "c"]);
});

describe("A field that only upstreams of the request's own wire can take", () => {
  const providerOf = (fields: Partial<Provider>) => fields as Provider;
  const native = { wire: "messages" as const, body: {}, headers: {}, needed: "messages[0].content[0].citations" };
  const call = { request: request(), output: statedOutput(request()), native };
  const other = { ...route, providerId: "other" };

  test("excludes the routes of other upstreams.", () => {
    const providers = new Map([
      ["p", providerOf({ nativeWire: "messages" })],
      ["other", providerOf({ convert: () => ({ prompt: [] }) })],
    ]);
    const { routes } = routesFor({ providers }, modelOf({ routes: [other, route] }), call);
    expect(routes).toEqual([route]);
  });

  test("is refused by a model without such an upstream.", () => {
    const providers = new Map([["p", providerOf({ nativeWire: "responses" })]]);
    expect(() => routesFor({ providers }, modelOf(), call)).toThrow(
      expect.objectContaining({ code: "unsupported_value", param: native.needed }),
    );
  });
});
