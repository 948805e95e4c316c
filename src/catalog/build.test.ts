import { Ajv } from "ajv";
import { describe, expect, test } from "vitest";
import { Model } from "../api/model.ts";
import { FREE } from "../credits/price.ts";
import { OperatorError } from "../errors.ts";
import { PROVIDER_KEY_VARIABLES } from "../providers/registry.ts";
import { buildCatalog, type CatalogSources } from "./build.ts";
import type { ModelSettings } from "./configured.ts";
import { providersOfKeys } from "./known-providers.ts";
import type { CatalogModel } from "./model.ts";
import { toApiModel } from "./model.ts";

const NOW = Date.parse("2026-11-21T12:00:00Z");
const OPENAI = { id: "openai", kind: "openai-compatible", baseUrl: "https://api.openai.com/v1" };
const LOCAL = { id: "local", kind: "openai-compatible", baseUrl: "http://127.0.0.1:9/v1" };
const SANDBOX_IDS = ["echo", "embed", "fault", "image", "speech", "story", "transcribe"].map(
  (name) => `sandbox/${name}`,
);
const isModel = new Ajv().compile(Model);

function build(sources: Partial<CatalogSources>, nowMs = NOW) {
  return buildCatalog({ models: [], providers: [], credits: { perDollar: "1", markup: "0" }, ...sources }, nowMs);
}

function configured(model: Partial<ModelSettings>, providers = [OPENAI, LOCAL]): CatalogModel {
  const settings = { id: "m", routes: [{ provider: "openai", model: "gpt-5-mini" }], ...model };
  const found = build({ models: [settings], providers }).find(settings.id);
  if (found === undefined) throw new Error("The model is not listed");
  return found;
}

function keysOf(...names: string[]) {
  return providersOfKeys(Object.fromEntries(names.map((name) => [name, "key"])));
}

function ids(list: readonly CatalogModel[]): string[] {
  return list.map(({ id }) => id);
}

describe("The sandbox", () => {
  test("is in a catalog without other models.", () => {
    const list = build({}).list();
    expect(ids(list)).toEqual(SANDBOX_IDS);
    for (const model of list) {
      const others: Record<string, object> = {
        "sandbox/embed": { category: "embedding", prices: { input: 1_000_000n, output: 0n } },
        "sandbox/image": { category: "image", prices: { input: 0n, output: 0n, images: 40_000_000_000n } },
        "sandbox/speech": { category: "speech", prices: { input: 0n, output: 0n, characters: 15_000_000n } },
        "sandbox/transcribe": { category: "transcription", prices: { input: 0n, output: 0n, seconds: 100_000_000n } },
      };
      const usual = { category: "sandbox", prices: { input: 1_000_000n, output: 2_000_000n } };
      expect(model).toMatchObject({ ownedBy: "tollgate", playground: true, ...(others[model.id] ?? usual) });
      expect(model.routes).toMatchObject([{ providerId: "sandbox", model: model.id.split("/")[1] }]);
    }
  });

  test("is in a catalog with configured models, which may replace its models.", () => {
    const models = [
      { id: "sandbox/echo", routes: [{ provider: "sandbox", model: "echo" }], price: { input: "0", output: "9" } },
    ];
    const catalog = build({ models });
    expect(ids(catalog.list())).toEqual(SANDBOX_IDS);
    expect(catalog.find("sandbox/echo")?.prices).toMatchObject({ input: 0n, output: 9_000_000n });
  });

  test("serves its models under other ids at its own price.", () => {
    expect(configured({ routes: [{ provider: "sandbox", model: "story" }] }).prices.output).toBe(2_000_000n);
  });

  test("is absent with its provider if it is disabled.", () => {
    const sandbox = { enabled: false };
    expect(build({ sandbox }).list()).toEqual([]);
    const models = [{ id: "m", routes: [{ provider: "sandbox", model: "echo" }] }];
    expect(() => build({ sandbox, models, providers: [LOCAL] })).toThrow(/provider: found "sandbox"; allowed: local$/);
    const own = { id: "mine", kind: "sandbox", baseUrl: null };
    expect(() => build({ sandbox, providers: [own] })).toThrow(
      /'mine' has the kind sandbox, but sandbox\.enabled is false/,
    );
  });

  test("reserves its provider's id.", () => {
    const thief = { ...LOCAL, id: "sandbox" };
    expect(() => build({ providers: [thief] })).toThrow(
      'providers: found the id "sandbox" with the kind "openai-compatible"; allowed: any other id, because that one belongs to the built-in models',
    );
  });
});

describe("A configured model", () => {
  test("takes unconfigured values from the known facts of its first route.", () => {
    expect(configured({ routes: [{ provider: "openai", model: "gpt-5-mini-2025-08-07" }] })).toMatchObject({
      name: "GPT-5 Mini",
      ownedBy: "openai",
      category: "reasoning",
      contextWindow: 400_000,
      maxOutputTokens: 128_000,
      cutoffDate: "2024-05-30",
      cutoffBasis: "stated",
      created: Date.parse("2025-08-07") / 1000,
      playground: false,
      prices: { input: 250_000n, cachedInput: 25_000n, output: 2_000_000n },
    });
    expect(configured({}).refusedParameters.has("temperature")).toBe(true);
    expect(configured({}).capabilities.has("prompt_caching")).toBe(true);
  });

  test("prefers configured values to known facts.", () => {
    const stated: Partial<ModelSettings> = {
      name: "House model",
      category: "chat",
      description: "Ours.",
      capabilities: ["tools"],
      contextWindow: 10_000,
      maxOutputTokens: 300,
      cutoffDate: "2025-01-01",
      playground: true,
    };
    const model = configured({ ...stated, price: { input: "0.25", cachedInput: "0.1", output: "2.0" } });
    expect(model).toMatchObject({ ...stated, capabilities: expect.anything(), cutoffBasis: "stated" });
    expect([...model.capabilities]).toEqual(["chat", "streaming", "instructions", "tools"]);
    expect(model.prices).toEqual({
      input: 250_000n,
      cachedInput: 100_000n,
      cacheWrite: 250_000n,
      output: 2_000_000n,
      reasoning: 2_000_000n,
    });
  });

  test("without known facts has assumed values and says so.", () => {
    const model = configured({ routes: [{ provider: "local", model: "tuned" }], price: { input: "0", output: "0" } });
    expect(model).toMatchObject({
      name: "m",
      ownedBy: "local",
      category: "chat",
      description: "The model tuned of the provider local.",
      contextWindow: 1_048_576,
      hasUnknownWindow: true,
      maxOutputTokens: 1_048_576,
      cutoffBasis: "assumed",
      prices: FREE,
    });
  });

  test("on another server has the facts of its name and no shutdown date.", () => {
    const model = configured({
      routes: [{ provider: "local", model: "openai/gpt-oss-20b" }],
      price: { input: "0", output: "0" },
    });
    expect(model).toMatchObject({ name: "gpt-oss-20b", cutoffDate: "2024-06-30", deprecatedSince: null });
  });

  test("has the configured or known output limit, at most its context window.", () => {
    const price = { input: "1", output: "1" };
    expect(configured({ price, maxOutputTokens: 100_000 }).maxOutputTokens).toBe(100_000);
    expect(configured({ price, contextWindow: 1000 }).maxOutputTokens).toBe(1000);
  });

  test("has the highest price of its routes for each token class, and each route keeps its own price.", () => {
    const mistral = { id: "mistral", kind: "openai-compatible", baseUrl: "https://api.mistral.ai/v1" };
    const routes = [
      { provider: "openai", model: "gpt-5-mini" },
      { provider: "mistral", model: "mistral-large-2512" },
    ];
    const model = configured({ routes }, [OPENAI, mistral]);
    expect(model.prices).toMatchObject({ input: 500_000n, cachedInput: 50_000n, output: 2_000_000n });
    expect(model.routes.map(({ prices }) => prices.input)).toEqual([250_000n, 500_000n]);
  });

  test("with a configured price has that price on every route.", () => {
    const routes = [
      { provider: "openai", model: "gpt-5.4" },
      { provider: "local", model: "x" },
    ];
    const model = configured({ routes, price: { input: "3", output: "4" } });
    expect(model.routes.map(({ prices, tiers }) => [prices.input, tiers])).toEqual([
      [3_000_000n, undefined],
      [3_000_000n, undefined],
    ]);
    expect(model.tiers).toBeUndefined();
  });

  test("has the known prices of short and long prompts.", () => {
    const model = configured({ routes: [{ provider: "openai", model: "gpt-5.4" }] });
    expect(model.prices.input).toBe(5_000_000n);
    expect(model.tiers).toMatchObject([{ promptTokensMax: 271_999, prices: { input: 2_500_000n } }]);
  });

  test("has the markup on known prices, not on configured ones.", () => {
    const credits = { perDollar: "10", markup: "0.5" };
    const models = [
      { id: "known", routes: [{ provider: "openai", model: "gpt-5-mini" }] },
      { id: "stated", routes: [{ provider: "openai", model: "gpt-5-mini" }], price: { input: "0.25", output: "2" } },
    ];
    const catalog = build({ models, providers: [OPENAI], credits });
    expect(catalog.find("known")?.prices.input).toBe(3_750_000n);
    expect(catalog.find("stated")?.prices.input).toBe(250_000n);
  });

  test("lacks the capabilities that its provider's address does not support.", () => {
    const [anthropic] = keysOf("ANTHROPIC_API_KEY");
    if (anthropic === undefined) throw new Error("Anthropic is not known");
    const routes = [{ provider: "anthropic", model: "claude-sonnet-4-6" }];
    const compatible = configured({ routes }, [{ ...anthropic, kind: "openai-compatible" }]);
    expect(compatible.capabilities.has("structured_output")).toBe(false);
    expect(compatible.refusedParameters.has("reasoning_effort")).toBe(true);
    const native = configured({ routes }, [anthropic]);
    expect(native.capabilities.has("structured_output")).toBe(true);
    expect(native.refusedParameters.has("reasoning_effort")).toBe(false);
    expect(native.refusedParameters.has("logprobs")).toBe(true);
  });

  test("replaces the models that known providers offer.", () => {
    const models = [{ id: "m", routes: [{ provider: "openai", model: "gpt-5-mini" }] }];
    expect(ids(build({ models, providers: [OPENAI] }).list())).toEqual(["m", ...SANDBOX_IDS]);
  });
});

describe("A mistake in a configured model is reported in one line:", () => {
  const route = { provider: "openai", model: "gpt-5-mini" };
  const cases: [string, Partial<ModelSettings>, RegExp][] = [
    [
      "no price",
      { routes: [{ provider: "local", model: "x" }] },
      /^models\[1\]\.price: found no price for the model "x" of the provider "local"; allowed: input and output, in credits per million tokens, such as /,
    ],
    [
      "no price on a later route",
      { routes: [route, { provider: "local", model: "x" }] },
      /^models\[1\]\.price: found no price for the model "x" of the provider "local"; allowed: /,
    ],
    [
      "a fee by the request",
      { routes: [{ provider: "openai", model: "gpt-4o-search-preview" }] },
      /^models\[1\]\.price: found no price .* which charges for what no answer reports; allowed: /,
    ],
    [
      "an unknown provider",
      { routes: [route, { provider: "opnai", model: "x" }] },
      /^models\[1\]\.routes\[1\]\.provider: found "opnai"; allowed: openai, local, sandbox$/,
    ],
    [
      "an unknown sandbox model",
      { routes: [{ provider: "sandbox", model: "parrot" }] },
      /^models\[1\]\.price: found no price for the model "parrot" of the provider "sandbox"; allowed: /,
    ],
    ["no routes", { routes: [] }, /^models\[1\]\.routes: found an empty list; allowed: at least one /],
    [
      "a price that is no number",
      { price: { input: "0,25", output: "1" } },
      /^models\[1\]\.price\.input: found "0,25"; allowed: a decimal number, 0 or more, such as 0\.25$/,
    ],
    [
      "a chat model without a price of output",
      { price: { input: "1" } },
      /^models\[1\]\.price\.output: missing; allowed: a decimal number, 0 or more, such as 0\.25$/,
    ],
    [
      "a tier with a bad price",
      { price: { input: "1", output: "1", abovePromptTokens: { 1000: { output: "x" } } } },
      /^models\[1\]\.price\.abovePromptTokens\.1000\.output: found "x"; allowed: /,
    ],
    [
      "a service tier with a bad price for long prompts",
      { price: { input: "1", output: "1", serviceTiers: { flex: { abovePromptTokens: { 1000: { input: "x" } } } } } },
      /^models\[1\]\.price\.serviceTiers\.flex\.abovePromptTokens\.1000\.input: found "x"; allowed: /,
    ],
    ["a negative price", { price: { input: "1", output: "-1" } }, /^models\[1\]\.price\.output: found "-1"; allowed: /],
    [
      "a bad cached price",
      { price: { input: "1", cachedInput: "free", output: "1" } },
      /^models\[1\]\.price\.cachedInput: found "free"; allowed: /,
    ],
  ];

  test.each(cases)("%s", (_name, mistake, line) => {
    const models = [
      { id: "first", routes: [route] },
      { id: "second", routes: [route], ...mistake },
    ];
    let told: unknown;
    try {
      build({ models, providers: [OPENAI, LOCAL] });
    } catch (error) {
      told = error;
    }
    expect(told).toBeInstanceOf(OperatorError);
    expect((told as OperatorError).message).toMatch(line);
    expect((told as OperatorError).message).not.toContain("\n");
  });
});

describe("Without configured models,", () => {
  const all = build({ providers: keysOf(...PROVIDER_KEY_VARIABLES) });

  test("every provider with a key offers its known models.", () => {
    expect(ids(build({ providers: keysOf("OPENAI_API_KEY") }).list())).toEqual(
      expect.arrayContaining(["gpt-4o-mini", "gpt-5", "gpt-5-mini", ...SANDBOX_IDS]),
    );
    expect(ids(build({ providers: keysOf("ANTHROPIC_API_KEY") }).list())).toContain("claude-sonnet-4-5");
    expect(ids(build({ providers: keysOf("GEMINI_API_KEY") }).list())).toContain("gemini-2.5-flash");
  });

  test.each(all.list().map((model) => [model.id, model] as const))(
    "The model %s matches the schema of the API.",
    (_id, model) => {
      const shown = toApiModel(model);
      expect(isModel(shown), JSON.stringify(isModel.errors)).toBe(true);
      expect(shown.description).toMatch(/^\S.{20,300}\.$/);
      expect(new Date(shown.cutoff_date).toISOString().slice(0, 10)).toBe(shown.cutoff_date);
      expect(Date.parse(shown.cutoff_date)).toBeLessThanOrEqual(NOW);
      const others: Record<string, string[]> = {
        embedding: ["embeddings"],
        image: ["images"],
        speech: ["speech"],
        transcription: ["transcription"],
      };
      const usual = others[shown.category] ?? ["chat", "streaming", "instructions"];
      expect(shown.capabilities.slice(0, 3)).toEqual(usual);
      const { input, images = 0, characters = 0, seconds = 0 } = shown.pricing_details;
      expect(input + images + characters + seconds).toBeGreaterThan(0);
      expect(model.prices.cachedInput).toBeLessThanOrEqual(model.prices.input);
    },
  );

  test("several hundred models are sorted by unique ids and have a route to an available provider.", () => {
    const list = all.list();
    expect(list.length).toBeGreaterThan(200);
    expect(ids(list)).toEqual(ids(list).toSorted((a, b) => (a < b ? -1 : 1)));
    expect(new Set(ids(list)).size).toBe(list.length);
    const present = new Set(["sandbox", ...keysOf(...PROVIDER_KEY_VARIABLES).map(({ id }) => id)]);
    for (const { routes } of list) expect(present.has(routes[0]?.providerId ?? "")).toBe(true);
  });

  test("an id of two providers belongs to the first in the table, and the other id has the provider's name.", () => {
    const catalog = build({ providers: keysOf("OPENROUTER_API_KEY", "GROQ_API_KEY") });
    expect(catalog.find("openai/gpt-oss-120b")?.routes[0]?.providerId).toBe("groq");
    expect(catalog.find("openrouter/openai/gpt-oss-120b")?.routes).toMatchObject([
      { providerId: "openrouter", model: "openai/gpt-oss-120b" },
    ]);
  });

  test("a model is absent from the day of its shutdown.", () => {
    const at = (date: string) => build({ providers: keysOf("OPENAI_API_KEY") }, Date.parse(date)).find("o4-mini");
    expect(at("2026-10-22T23:59:59Z")).toMatchObject({
      deprecatedSince: expect.any(Number),
      shutdownDate: "2026-10-23",
      replacement: "gpt-5-mini",
    });
    expect(at("2026-10-23T00:00:00Z")).toBeUndefined();
  });

  test("a replacement has the id that callers use.", () => {
    const catalog = build({ providers: keysOf("OPENROUTER_API_KEY") }, Date.parse("2026-10-01"));
    expect(catalog.find("openai/o4-mini")?.replacement).toBe("openai/gpt-5-mini");
  });

  test("models with charges that no answer reports are left out, and a note says so.", () => {
    const catalog = build({ providers: keysOf("PERPLEXITY_API_KEY") });
    expect(ids(catalog.list())).toEqual([...SANDBOX_IDS, "sonar", "sonar-pro", "sonar-reasoning-pro"]);
    expect(catalog.find("sonar")?.prices).toMatchObject({ requests: 12_000_000_000n });
    expect(catalog.notes).toEqual([
      "sonar-deep-research: not offered, because perplexity charges for what no answer reports; to offer one, state a price for it under models",
    ]);
  });

  test("a configured provider of a known address offers its models under its own id.", () => {
    const mine = { ...OPENAI, id: "mine" };
    expect(build({ providers: [mine] }).find("gpt-5-mini")?.routes[0]?.providerId).toBe("mine");
  });

  test("local models are free and have their server's name.", () => {
    const ollama = { id: "ollama", name: "Ollama", kind: "openai-compatible", baseUrl: "http://127.0.0.1:1/v1" };
    const models = [
      { name: "tuned:7b", contextWindow: 8192, fileDate: "2025-03-04", can: ["tools", "vision"] as const },
      { name: "gpt-oss:20b" },
      { name: "odd" },
    ];
    const catalog = build({ found: [{ ...ollama, models }] });
    expect(catalog.find("ollama/tuned:7b")).toMatchObject({
      prices: FREE,
      ownedBy: "ollama",
      category: "vision",
      contextWindow: 8192,
      cutoffDate: "2025-03-04",
      cutoffBasis: "released",
      created: Date.parse("2025-03-04") / 1000,
      description: "The model tuned:7b on the Ollama server of this machine.",
      routes: [{ providerId: "ollama", model: "tuned:7b" }],
    });
    expect(catalog.find("ollama/gpt-oss:20b")).toMatchObject({ cutoffBasis: "stated", ownedBy: "ollama" });
    expect(catalog.find("ollama/odd")?.cutoffBasis).toBe("assumed");
    for (const model of catalog.list()) expect(isModel(toApiModel(model))).toBe(true);
  });
});
