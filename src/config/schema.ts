import { type Static, Type } from "typebox";
import { MAX_TOKENS_DEFAULT, TEMPERATURE_MAX } from "../api/chat/request.ts";
import { FORMATS } from "./formats.ts";
import { IdentitySchema } from "./identity-schema.ts";
import {
  ConversationsSchema,
  LedgerSchema,
  Responses,
  RetentionSchema,
  StatementsSchema,
  WarningsSchema,
} from "./ledger-schema.ts";
import { PaymentsSchema } from "./payments-schema.ts";
import { Metrics, TelemetrySchema } from "./telemetry-schema.ts";
import {
  Aliases,
  Count,
  DecimalText,
  Group,
  IntegerIn,
  ModelSchema,
  NumberIn,
  ONE_BILLION,
  OptionalKeys,
  PriceLists,
  ProviderSchema,
} from "./upstream-schema.ts";

/**
 * The schema of the configuration, for its file, its flags and its variables. The guide lists `description` and `default`; errors
 * use `allowed`. A change takes effect at a reload if the key, or a group around it, has `reload: true`.
 */

const PROXY_HOPS_MAX = 32;

const Server = Group({
  host: Type.String({
    default: "127.0.0.1",
    format: "host",
    description: "Address to listen on; 0.0.0.0 or :: for all addresses. Also HOST and --host.",
  }),
  port: IntegerIn(0, 65535, {
    default: 8484,
    description: "Port to listen on; 0 for any free port. Also PORT and --port.",
  }),
  trustProxy: Type.Unsafe<false | number | string>({
    type: ["boolean", "integer", "string"],
    // With true, every client could claim any address.
    not: { const: true },
    minimum: 1,
    maximum: PROXY_HOPS_MAX,
    format: "proxies",
    default: false,
    allowed: `false, the addresses and networks of the proxies in one text, such as "10.0.0.0/8, 127.0.0.1", or the number of proxies, 1 to ${PROXY_HOPS_MAX}`,
    description:
      "Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted: none, those at the listed addresses, or the last N proxies of a request.",
  }),
  basePath: Type.String({
    default: "",
    format: "base-path",
    description:
      "Path under which a proxy publishes the service, such as /tollgate; empty for the root. Requests are accepted with and without it.",
  }),
  ...OptionalKeys({
    publicUrl: Type.String({
      ...{ reload: true, format: "http-url" },
      description: "Address of the console for links in mails, such as https://ai.example.com.",
    }),
  }),
  keyInQuery: Type.Boolean({
    default: false,
    description:
      "True to accept a token as `?key=` on /v1beta, as Google does. Proxies and browsers may log URLs; Tollgate removes it.",
  }),
  bodyLimitBytes: IntegerIn(1024, ONE_BILLION, {
    default: 20 * 1024 * 1024,
    description: "Maximum size of a request body.",
  }),
  bodiesInFlightBytes: IntegerIn(1024, 1000 * ONE_BILLION, {
    default: 256 * 1024 * 1024,
    description:
      "Maximum total size of the request bodies in memory; one organization can use half of it. Requests above it get 503. The minimum is twice `server.bodyLimitBytes`.",
  }),
  maxConnections: Count(1_000_000, {
    default: 16_384,
    description:
      "Maximum number of open connections of a process; further ones are closed at once. One organization can use three quarters of them.",
  }),
  overload: Group({
    eventLoopDelayMs: IntegerIn(0, 60_000, {
      default: 250,
      description:
        "Delay of the event loop, or wait of new connections, above which a growing share of new requests gets 503; 0 for no limit.",
    }),
    memoryShare: NumberIn(0, 0.99, {
      default: 0.9,
      description:
        "Share of the heap limit, or of the memory of the container or machine, above which new requests get 503; 0 for no limit.",
    }),
  }),
  drainDelaySeconds: NumberIn(0, 3_600, {
    reload: true,
    default: 0,
    description: "Time for which a stopping service still accepts new connections, with `/readyz` at 503 (draining).",
  }),
  drainSeconds: NumberIn(0, 86_400, {
    reload: true,
    default: 600,
    description: "Time for which running answers may continue when the service stops.",
  }),
  storeWaitSeconds: NumberIn(0, 86_400, {
    default: 30,
    description:
      "Time for which a start waits for an unreachable PostgreSQL, with 503 for every request; 0 to fail at once.",
  }),
});

const Limits = Group(
  {
    requestsPerMinute: Count(ONE_BILLION, { default: 600, description: "Requests per minute." }),
    tokensPerMinute: Count(ONE_BILLION, { default: 1_000_000, description: "Tokens per minute." }),
    concurrentRequests: Count(1_000_000, { default: 100, description: "Concurrent completions." }),
    newValuesPerMinute: Count(1_000_000, {
      default: 600,
      description: "Requests per minute and token with a value of `metadata` that a budget has not counted yet.",
    }),
  },
  { reload: true, description: "Limits of each organization and each token." },
);

const Playground = Group(
  {
    requestsPerMinute: Count(ONE_BILLION, { default: 10, description: "Requests per minute from one address." }),
    tokensPerDay: Count(ONE_BILLION, { default: 100_000, description: "Tokens per day for all guests together." }),
    maxTokens: Count(MAX_TOKENS_DEFAULT, { default: 512, description: "Maximum max_tokens." }),
    openToGuests: Type.Boolean({
      default: false,
      description: "True to open the console's playground to guests without a token.",
    }),
  },
  { reload: true, description: "Limits of the playground organization, which holds no credits." },
);

export const ConfigSchema = Group({
  server: Server,
  dataDir: Type.String({
    default: ".tollgate",
    minLength: 1,
    format: "path",
    description:
      "Directory of the embedded store, the spool and the dead letters. Also TOLLGATE_DATA_DIR and --data-dir.",
  }),
  ...OptionalKeys({
    database: Type.String({
      format: "postgres-url",
      description: "Address of a PostgreSQL database; if absent, SQLite in the data directory. Also DATABASE_URL.",
    }),
    redis: Type.String({
      format: "redis-url",
      description:
        "Address of a Redis or Valkey server in which several processes count their limits together. Also REDIS_URL.",
    }),
  }),
  credits: Group(
    {
      perDollar: DecimalText({
        default: "1",
        format: "decimal-above-0",
        allowed: "a decimal number above 0, such as 1",
        description: "Credits per dollar of a provider's known price.",
      }),
      markup: DecimalText({ default: "0", description: "Markup on known prices: 0.2 adds 20 %." }),
    },
    { reload: true },
  ),
  limits: Limits,
  playground: Playground,
  identity: IdentitySchema,
  completions: Group(
    {
      messages: Type.Enum(["reply", "conversation"], {
        default: "reply",
        description:
          "Contents of `messages` in an answer: only the reply, or the conversation with the reply as its last message.",
      }),
      maxTokens: Type.Unsafe<number | "model" | "clamp">({
        type: ["integer", "string"],
        minimum: 1,
        maximum: ONE_BILLION,
        pattern: "^(model|clamp)$",
        default: MAX_TOKENS_DEFAULT,
        allowed: `an integer from 1 to ${ONE_BILLION}, model or clamp`,
        description:
          "Maximum max_tokens of chat completions, also for requests without a bound; model: each model's own maximum; clamp: the same, and a higher max_tokens is lowered instead of refused. All other bounds are lowered to the model's maximum.",
      }),
      maxTemperature: NumberIn(1, TEMPERATURE_MAX, {
        default: 1,
        description: "Maximum temperature of chat completions. A provider can refuse one above 1.",
      }),
    },
    { reload: true },
  ),
  conversations: ConversationsSchema,
  responses: Responses,
  retention: RetentionSchema,
  warnings: WarningsSchema,
  statements: StatementsSchema,
  payments: PaymentsSchema,
  ledger: LedgerSchema,
  log: Group(
    {
      level: Type.Enum(["fatal", "error", "warn", "info", "debug", "silent"], {
        default: "info",
        description: "Minimum level of logged lines. Also LOG_LEVEL.",
      }),
      sampleRate: NumberIn(0, 1, {
        default: 1,
        description:
          "Share of successful requests that are logged. Failed requests are always logged, up to `log.failuresPerMinute`.",
      }),
      failuresPerMinute: Count(ONE_BILLION, {
        default: 600,
        description: "Maximum number of lines per minute for failed requests; the others are counted by error code.",
      }),
    },
    { reload: true },
  ),
  metrics: Metrics,
  telemetry: TelemetrySchema,
  sandbox: Group(
    { enabled: Type.Boolean({ default: true, description: "False to remove the built-in `sandbox/…` models." }) },
    { reload: true },
  ),
  providers: Type.Array(ProviderSchema, { reload: true, default: [], description: "Providers of models." }),
  models: Type.Array(ModelSchema, { reload: true, default: [], description: "Models that requests can name." }),
  ...OptionalKeys({ aliases: Aliases, priceLists: PriceLists }),
});

export type Settings = Static<typeof ConfigSchema>;

/** The parts of a JSON schema that errors and `schemaAt` read. */
export interface SchemaNode {
  type?: string | string[];
  default?: unknown;
  enum?: unknown[];
  format?: string;
  allowed?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  minItems?: number;
  reload?: boolean;
  properties?: Record<string, SchemaNode>;
  items?: SchemaNode;
  /** The schema of the values of a record, by the pattern of their names. */
  patternProperties?: Record<string, SchemaNode>;
}

export const configNode = ConfigSchema as unknown as SchemaNode;

/** Writes the defaults of absent settings into values, which may be invalid. */
export function addDefaults(values: unknown, schema: SchemaNode): void {
  if (Array.isArray(values)) for (const item of values) addDefaults(item, schema.items ?? {});
  else if (typeof values === "object" && values !== null) {
    const members = values as Record<string, unknown>;
    for (const [name, member] of Object.entries(schema.properties ?? {})) {
      if (members[name] === undefined && member.default !== undefined) members[name] = structuredClone(member.default);
      addDefaults(members[name], member);
    }
    const [value] = Object.values(schema.patternProperties ?? {});
    if (value !== undefined) for (const member of Object.values(members)) addDefaults(member, value);
  }
}

/** Returns the part of the schema at a path; undefined if there is none. */
export function schemaAt(path: readonly (string | number)[], schema = configNode): SchemaNode | undefined {
  let node: SchemaNode | undefined = schema;
  for (const step of path) {
    const [value]: SchemaNode[] = Object.values(node?.patternProperties ?? {});
    node = (typeof step === "number" ? node?.items : node?.properties?.[step]) ?? value;
  }
  return node;
}

/** Tests whether a change of the key at a path takes effect at a reload. */
export function takesEffectAtReload(path: readonly (string | number)[]): boolean {
  return path.some((_step, index) => schemaAt(path.slice(0, index + 1))?.reload === true);
}

/** Describes the values that a schema allows. */
export function allowedWords(schema: SchemaNode): string {
  if (schema.allowed !== undefined) return schema.allowed;
  if (schema.enum !== undefined) return schema.enum.join(", ");
  if (schema.format !== undefined) return FORMATS[schema.format]?.words ?? schema.format;
  if (schema.type === "integer" || schema.type === "number") {
    const noun = schema.type === "integer" ? "an integer" : "a number";
    return `${noun} from ${schema.minimum} to ${schema.maximum}`;
  }
  if (schema.type === "boolean") return "true or false";
  if (schema.type === "array") return schema.minItems === undefined ? "a list" : "a list with at least one entry";
  if (schema.type === "object") return `a group of settings: ${Object.keys(schema.properties ?? {}).join(", ")}`;
  return schema.minLength === undefined ? "text" : "text that is not empty";
}
