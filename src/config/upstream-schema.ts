import { type Static, type TSchema, Type } from "typebox";
import { CAPABILITIES, CATEGORIES } from "../api/model.ts";
import { PRICE_ROWS, type PriceSetting } from "../api/price-classes.ts";
import { OptionalKeys, Strict } from "../api/schema.ts";
import { DECIMAL_WORDS } from "./formats.ts";

/** Schema of a number that is stored as decimal text, so that no price passes through a float. */
export const DecimalText = (options: object) =>
  Type.Unsafe<string>({
    type: ["string", "number"],
    format: "decimal",
    minimum: 0,
    allowed: DECIMAL_WORDS,
    ...options,
  });
/** Schemas of numbers between two bounds, both of which are allowed. */
export const NumberIn = (minimum: number, maximum: number, options: object) =>
  Type.Number({ minimum, maximum, ...options });
export const IntegerIn = (minimum: number, maximum: number, options: object) =>
  Type.Integer({ minimum, maximum, ...options });
export const Count = (maximum: number, options: object) => IntegerIn(1, maximum, options);
export { OptionalKeys, Strict };
export const Group = <T extends Record<string, TSchema>>(properties: T, options: object = {}) =>
  Strict(properties, { default: {}, ...options });
const Name = (options: object) =>
  Type.String({ pattern: "^[^\\s\\p{Cc}]{1,200}$", allowed: "1 to 200 characters without spaces", ...options });

export const Headers = (description: string) =>
  Type.Record(Type.String(), Type.String({ format: "header-value" }), {
    default: {},
    propertyNames: { format: "header-name" },
    allowed: "header names and their values, as text",
    description,
  });

export const ONE_BILLION = 1_000_000_000;

const Milliseconds = (options: object) => Count(3_600_000, options);

const HostPart = (options: object) =>
  Type.String({ pattern: "^[0-9A-Za-z][0-9A-Za-z-]{0,62}$", allowed: "letters, digits and hyphens", ...options });
const Secret = (options: object) => Type.String({ minLength: 1, ...options });

/** The timeouts of a provider, in milliseconds, where the configuration states none. */
export const PROVIDER_TIMEOUTS = { connectMs: 5_000, firstByteMs: 600_000, idleMs: 300_000 } as const;

export const ProviderSchema = Strict({
  id: Name({ description: "Name of the provider in routes." }),
  kind: Type.String({ minLength: 1, description: "Kind of provider, which decides its API." }),
  ...OptionalKeys({
    baseUrl: Type.String({ format: "http-url", description: "Base URL of the provider's API." }),
    apiKey: Secret({ description: "API key, usually from a variable as in the example." }),
    region: HostPart({ description: "AWS region." }),
    accessKeyId: Secret({ description: "AWS access key ID, instead of apiKey." }),
    secretAccessKey: Secret({ description: "AWS secret access key." }),
    sessionToken: Secret({ description: "AWS session token of temporary keys." }),
    project: HostPart({ description: "Google Cloud project." }),
    location: HostPart({ description: "Google Cloud location, such as global." }),
    credentialsFile: Type.String({
      minLength: 1,
      description: "Google Cloud credentials file; if absent, the credentials of the machine or of `gcloud auth`.",
    }),
    resourceName: HostPart({ description: "Azure OpenAI resource." }),
  }),
  headers: Headers("Additional headers of every request to this provider."),
  ...OptionalKeys({
    traceparent: Type.Boolean({
      description:
        "True to send this provider the trace context of requests, so that it can continue their traces; for providers of your own.",
    }),
    promptCaching: Type.Enum(["auto", "caller", "off"], {
      description:
        "Anthropic and Bedrock cache what is marked. auto: the service marks where a request has no marks; caller: only the marks of requests; off: none.",
    }),
  }),
  timeouts: Group({
    connectMs: Milliseconds({ default: PROVIDER_TIMEOUTS.connectMs, description: "Timeout for the connection." }),
    firstByteMs: Milliseconds({
      default: PROVIDER_TIMEOUTS.firstByteMs,
      description: "Timeout for the first byte of the answer.",
    }),
    idleMs: Milliseconds({
      default: PROVIDER_TIMEOUTS.idleMs,
      description: "Timeout between two chunks of an answer.",
    }),
  }),
});

const INPUT = DecimalText({ description: "Prompt tokens." });
const CLASSES = OptionalKeys(
  Object.fromEntries(PRICE_ROWS.map(({ setting, description }) => [setting, DecimalText({ description })])) as Record<
    PriceSetting,
    ReturnType<typeof DecimalText>
  >,
);
const TIERS = {
  ...CLASSES,
  ...OptionalKeys({
    abovePromptTokens: Type.Record(Type.String(), Strict(CLASSES), {
      propertyNames: { pattern: "^[1-9]\\d{0,8}$" },
      allowed: "numbers of prompt tokens, such as 200000, and the prices above them",
      description:
        "Prices of longer prompts, by the number of prompt tokens above which they apply. What is not stated costs as much as for shorter prompts.",
    }),
  }),
};
const IMAGE_QUALITY = "[a-z]+";
const IMAGE_SIZE = "[1-9]\\d{1,4}x[1-9]\\d{1,4}";
const PRICE = {
  ...TIERS,
  ...OptionalKeys({
    serviceTiers: Type.Record(Type.String(), Strict(TIERS), {
      allowed: "names of service tiers, such as flex and priority, and their prices",
      description:
        "Prices of answers for which the provider reports another service tier. What is not stated costs as much as at the usual one.",
    }),
    images: Type.Record(Type.String(), DecimalText({ description: "Credits for each image." }), {
      propertyNames: { pattern: `^(${IMAGE_QUALITY}/${IMAGE_SIZE}|${IMAGE_QUALITY}|${IMAGE_SIZE})$` },
      allowed: "sizes such as 1024x1024, qualities such as hd, or both as hd/1024x1024, and their prices",
      description:
        "Credits for each image of a size, of a quality, or of both. An image that none of them names costs perImage, by default the highest of them.",
    }),
  }),
};
const ONE_PRICE = Strict({ ...PRICE, input: INPUT });
const DATED_PRICE = Strict({
  ...OptionalKeys({
    from: Type.String({
      format: "date",
      description:
        "Day, in UTC, on which the price takes effect; optional for the first one. What is not stated is as in the price before.",
    }),
  }),
  ...PRICE,
});

/** One price, or a list of them: both forms in one schema, so that a mistake in either names its own key. */
const Price = (description: string) =>
  Type.Unsafe<Static<typeof ONE_PRICE> | Static<typeof DATED_PRICE>[]>({
    ...ONE_PRICE,
    type: ["object", "array"],
    items: DATED_PRICE,
    minItems: 1,
    allowed: "input and output, or a list of such prices with the day (from) on which each takes effect",
    description,
  });

export const ModelSchema = Strict({
  id: Name({ description: "Value of `model` in requests." }),
  routes: Type.Array(
    Strict({
      provider: Name({ description: "ID of a provider." }),
      model: Name({ description: "The provider's name of the model." }),
      ...OptionalKeys({
        price: Price("Price of this route."),
        runsTools: Type.Boolean({
          description:
            "True if the provider runs tools of its own, such as a search. Holds then cover the context window.",
        }),
        callsMost: Count(1_000, {
          description:
            "Most searches, and most images, that one answer is charged for if they have a price; 10 by default.",
        }),
        weight: Count(1_000, {
          description: "Relative frequency of being tried first; set for all routes of a model or for none.",
        }),
      }),
    }),
    { minItems: 1, description: "Routes of the model, tried in this order or by weight." },
  ),
  ...OptionalKeys({
    price: Price("Credits per million tokens, for routes without a price of their own."),
    name: Type.String({ minLength: 1, description: "Display name." }),
    category: Type.Enum([...CATEGORIES], { description: "Kind of model." }),
    description: Type.String({ minLength: 1, description: "Short description." }),
    capabilities: Type.Array(Type.Enum([...CAPABILITIES]), { uniqueItems: true }),
    contextWindow: Count(ONE_BILLION, { description: "Maximum tokens of prompt and answer together." }),
    maxOutputTokens: Count(ONE_BILLION, {
      description: "Maximum output tokens of the model; the context window if absent and unknown.",
    }),
    dimensions: Count(ONE_BILLION, { description: "Length of the vectors of an embedding model." }),
    cutoffDate: Type.String({ format: "date", description: "Knowledge cutoff, YYYY-MM-DD." }),
    playground: Type.Boolean({ description: "True to offer the model to guests." }),
    limits: Strict(
      OptionalKeys({
        requestsPerMinute: Count(ONE_BILLION, { description: "Requests per minute." }),
        tokensPerMinute: Count(ONE_BILLION, { description: "Tokens per minute." }),
        concurrentRequests: Count(1_000_000, { description: "Concurrent requests." }),
      }),
      { description: "Limits of the model for all callers together; none by default." },
    ),
  }),
});

/** Prices of organizations, by the names of their lists. */
export const PriceLists = Type.Record(
  Type.String(),
  Strict({
    factor: DecimalText({
      default: "1",
      description: "Multiplies the prices of the models.",
    }),
    prices: Type.Record(
      Type.String(),
      Price("Price of the model for these organizations; the factor does not apply."),
      {
        default: {},
        allowed: "ids of models, and their prices",
        description: "Prices of single models, by their ids.",
      },
    ),
  }),
  {
    propertyNames: { pattern: "^[a-z0-9][a-z0-9._-]{0,63}$" },
    reload: true,
    allowed: "names of lower-case letters, digits, dots, hyphens and underscores, and what the lists change",
    description:
      "Prices of organizations that an operator gives a list. `factor` multiplies the prices of all models: 0.9 is a discount of 10 %, 1.2 a markup of 20 %; 1 by default. `prices` has the price of single models by their ids, in the form of `models[].price`; the factor does not change them.",
  },
);

/** Further names of models, by name or by the beginning of names. */
export const Aliases = Type.Record(Type.String(), Name({ description: "ID of the model." }), {
  propertyNames: { pattern: "^[^\\s\\p{Cc}*]{0,199}[^\\s\\p{Cc}]$" },
  reload: true,
  allowed: "names, such as gpt-4o or claude-*, with the id of a model each; a * is allowed only at the end",
  description:
    "Further names of models. One that ends with * stands for all names with this beginning that no model has. Absent, and without models: claude-* and gemini-* name a model that takes tools.",
});
