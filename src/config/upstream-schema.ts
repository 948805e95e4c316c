import { type Static, type TSchema, Type } from "typebox";
import { CAPABILITIES, CATEGORIES } from "../api/model.ts";

/** Schema of a number that is stored as decimal text, so that no price passes through a float. */
export const Decimal = (options: object) =>
  Type.Unsafe<string>({
    type: ["string", "number"],
    format: "decimal",
    minimum: 0,
    allowed: DECIMAL_WORDS,
    ...options,
  });
export const DECIMAL_WORDS = "a decimal number, 0 or more, such as 0.25";
export const Count = (maximum: number, options: object) => Type.Integer({ minimum: 1, maximum, ...options });
export const Group = <T extends Record<string, TSchema>>(properties: T, options: object = {}) =>
  Type.Object(properties, { additionalProperties: false, default: {}, ...options });
const Name = (options: object) =>
  Type.String({ pattern: "^[^\\s\\p{Cc}]{1,200}$", allowed: "1 to 200 characters without spaces", ...options });

export const ONE_BILLION = 1_000_000_000;

const Milliseconds = (options: object) => Count(3_600_000, options);

/** Schema of text that becomes part of a host name. */
const HostPart = (options: object) =>
  Type.String({ pattern: "^[0-9A-Za-z][0-9A-Za-z-]{0,62}$", allowed: "letters, digits and hyphens", ...options });
const Secret = (options: object) => Type.String({ minLength: 1, ...options });

/** The timeouts of a provider, in milliseconds, where the configuration states none. */
export const PROVIDER_TIMEOUTS = { connectMs: 5_000, firstByteMs: 600_000, idleMs: 300_000 } as const;

export const Provider = Type.Object(
  {
    id: Name({ description: "The name that routes use." }),
    kind: Type.String({ minLength: 1, description: "What the upstream speaks." }),
    baseUrl: Type.Optional(Type.String({ format: "http-url", description: "Address that paths are added to." })),
    apiKey: Type.Optional(
      Type.String({ minLength: 1, description: "Usually the name of a variable, as in the example." }),
    ),
    region: Type.Optional(HostPart({ description: "Region of Amazon Web Services." })),
    accessKeyId: Type.Optional(Secret({ description: "Of Amazon Web Services, instead of apiKey." })),
    secretAccessKey: Type.Optional(Secret({ description: "Belongs to accessKeyId." })),
    sessionToken: Type.Optional(Secret({ description: "Belongs to temporary keys of Amazon Web Services." })),
    project: Type.Optional(HostPart({ description: "Project of Google Cloud." })),
    location: Type.Optional(HostPart({ description: "Location of Google Cloud, such as global." })),
    credentialsFile: Type.Optional(
      Type.String({
        minLength: 1,
        description: "Credentials of Google Cloud; absent: those of the machine or of `gcloud auth`.",
      }),
    ),
    resourceName: Type.Optional(HostPart({ description: "Resource of Azure OpenAI." })),
    headers: Type.Record(Type.String(), Type.String({ format: "header-value" }), {
      default: {},
      propertyNames: { format: "header-name" },
      allowed: "header names and their values, as text",
      description: "Further headers of every request to this provider.",
    }),
    timeouts: Group({
      connectMs: Milliseconds({
        default: PROVIDER_TIMEOUTS.connectMs,
        description: "Until the connection is established.",
      }),
      firstByteMs: Milliseconds({ default: PROVIDER_TIMEOUTS.firstByteMs, description: "Until the answer begins." }),
      idleMs: Milliseconds({
        default: PROVIDER_TIMEOUTS.idleMs,
        description: "Longest silence in the middle of an answer.",
      }),
    }),
  },
  { additionalProperties: false },
);

const PRICE = {
  input: Decimal({ description: "Prompt tokens." }),
  cachedInput: Type.Optional(
    Decimal({ description: "Prompt tokens that the provider had cached; as input if absent." }),
  ),
  cacheWrite: Type.Optional(Decimal({ description: "Prompt tokens that it put into its cache; as input if absent." })),
  output: Decimal({ description: "Completion tokens." }),
  reasoning: Type.Optional(Decimal({ description: "Completion tokens of its reasoning; as output if absent." })),
};
const ONE_PRICE = Type.Object(PRICE, { additionalProperties: false });
const DATED_PRICE = Type.Object(
  {
    from: Type.Optional(
      Type.String({
        format: "date",
        description: "Day, in UTC, on which the price takes effect; the first may do without.",
      }),
    ),
    ...PRICE,
  },
  { additionalProperties: false },
);

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

export const Model = Type.Object(
  {
    id: Name({ description: "What callers send as `model`." }),
    routes: Type.Array(
      Type.Object(
        {
          provider: Name({ description: "Id of a provider." }),
          model: Name({ description: "The provider's own name of the model." }),
          price: Type.Optional(Price("Price of this route alone.")),
          weight: Type.Optional(
            Count(1_000, {
              description: "How often it comes first beside the others; stated for all routes of a model or for none.",
            }),
          ),
        },
        { additionalProperties: false },
      ),
      { minItems: 1, description: "Upstreams that serve the model, tried in this order, or by weight." },
    ),
    price: Type.Optional(Price("Credits per million tokens, on every route that states no price of its own.")),
    name: Type.Optional(Type.String({ minLength: 1, description: "Display name." })),
    category: Type.Optional(Type.Enum([...CATEGORIES], { description: "Kind of model." })),
    description: Type.Optional(Type.String({ minLength: 1, description: "Short description." })),
    capabilities: Type.Optional(Type.Array(Type.Enum([...CAPABILITIES]), { uniqueItems: true })),
    contextWindow: Type.Optional(Count(ONE_BILLION, { description: "Tokens of prompt and answer together." })),
    maxOutputTokens: Type.Optional(
      Count(ONE_BILLION, { description: "Longest answer of the model; absent and not known: 4096." }),
    ),
    dimensions: Type.Optional(Count(ONE_BILLION, { description: "Length of the vectors of an embedding model." })),
    cutoffDate: Type.Optional(Type.String({ format: "date", description: "What the model knows of, YYYY-MM-DD." })),
    playground: Type.Optional(Type.Boolean({ description: "Whether guests may use it." })),
  },
  { additionalProperties: false },
);
