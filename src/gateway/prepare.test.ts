import { describe, expect, test } from "vitest";
import type { Capability } from "../api/model.ts";
import type { ChatCompletionRequest } from "../api/request.ts";
import type { CatalogModel } from "../catalog/model.ts";
import { FREE } from "../credits/price.ts";
import type { Provider } from "../providers/provider.ts";
import { forUpstream, prepare, routesFor } from "./prepare.ts";

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

describe("what a model cannot take", () => {
  test.each([
    ["tools", { tools: [tool] }, "tools"],
    ["structured output", { response_format: { type: "json_object" as const } }, "response_format"],
    ["images", { messages: image }, "messages[0].content[0]"],
    ["logprobs", { logprobs: true }, "logprobs"],
  ])("%s is refused, naming the model's capabilities", (_name, fields, param) => {
    const model = modelOf({ refusedParameters: new Set(["logprobs"]) });
    expect(() => prepare(request(fields), model)).toThrow(
      expect.objectContaining({
        code: "unsupported_value",
        param,
        message: expect.stringContaining("chat, streaming"),
      }),
    );
  });

  test("a value that equals OpenAI's default is dropped without a word", () => {
    const model = modelOf({ refusedParameters: new Set(["temperature", "top_p", "logprobs", "presence_penalty"]) });
    const { request: fitted, ignored } = prepare(
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

  test("a hint is dropped and named", () => {
    const model = modelOf({ refusedParameters: new Set(["temperature", "seed"]) });
    const { request: fitted, ignored } = prepare(request({ temperature: 0.5, seed: 7, user: "u" }), model);
    expect(ignored).toEqual(["temperature", "seed"]);
    expect(fitted).toEqual(request({ user: "u" }));
  });

  test("what it takes is left as it is", () => {
    const model = modelOf({ capabilities: new Set<Capability>(["chat", "tools", "vision", "structured_output"]) });
    const asked = request({ tools: [tool], messages: image, temperature: 1, response_format: { type: "json_object" } });
    expect(prepare(asked, model)).toEqual({ request: asked, ignored: [] });
  });

  test("more output than the model gives is refused", () => {
    const model = modelOf({ maxOutputTokens: 2048 });
    expect(() => prepare(request({ max_tokens: 2049 }), model)).toThrow(/at most 2048 completion tokens/);
    expect(() => prepare(request({ max_completion_tokens: 2049 }), model)).toThrow(
      /max_completion_tokens is too large/,
    );
    expect(prepare(request({ max_tokens: 2048 }), model).ignored).toEqual([]);
  });
});

test("a request goes upstream with its instructions first and the upstream's own model name", () => {
  const asked = request({
    instructions: "Be brief.",
    max_completion_tokens: 7,
    metadata: { a: "b" },
    n: 1,
    stream: true,
  });
  expect(forUpstream(asked, route, 5)).toEqual({
    model: "upstream-name",
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "hello" },
    ],
    max_tokens: 5,
    stream: true,
  });
});

describe("an image that is sent by its address", () => {
  const at = (url: string) =>
    request({
      messages: [
        { role: "user", content: "look" },
        { role: "user", content: [{ type: "image_url", image_url: { url } }] },
      ],
    });
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

  test("goes to public upstreams alone", () => {
    expect(routesFor({ providers }, model, at("https://example.com/a.png"))).toEqual([route("public")]);
    expect(routesFor({ providers }, model, at("data:image/png;base64,AAAA"))).toEqual(model.routes);
  });

  test("is refused where every upstream is private", () => {
    const privateModel = modelOf({ routes: [route("private")] });
    expect(() => routesFor({ providers }, privateModel, at("https://example.com/a.png"))).toThrow(
      expect.objectContaining({
        param: "messages[1].content[0].image_url.url",
        message: expect.stringContaining("data:image/…;base64,…"),
      }),
    );
  });
});
