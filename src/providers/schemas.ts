import { isObject, type JsonObject } from "../api/json.ts";
import type { UpstreamRequest } from "./provider.ts";

export interface SchemaLimits {
  /** Keywords that it refuses, each with the values that it takes nevertheless. */
  refuses: Readonly<Record<string, readonly unknown[]>>;
  /** True if it enforces the schema of every answer; otherwise only one that is marked as `strict`, as with tools. */
  enforcesAnswers?: boolean;
  /** Matches the upstream's models with these limits; absent: all. */
  models?: RegExp;
}

const refused = (...keywords: readonly string[]) => Object.fromEntries(keywords.map((keyword) => [keyword, []]));

const NUMBERS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const LENGTHS = ["minLength", "maxLength"];
const COUNTS = ["uniqueItems", "contains", "minContains", "maxContains", "minProperties", "maxProperties"];

/** The keywords that Anthropic's own packages take out ("JSON Schema limitations" in its guide "Structured outputs"). */
export const CLAUDE_SCHEMAS: SchemaLimits = {
  refuses: {
    ...refused(...NUMBERS, ...LENGTHS, "pattern", "maxItems", ...COUNTS, "not"),
    minItems: [0, 1],
    format: ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"],
  },
  enforcesAnswers: true,
};
/** "Supported schemas" in OpenAI's guide "Structured outputs". */
export const OPENAI_SCHEMAS: SchemaLimits = { refuses: refused(...COUNTS) };
/** "Unsupported type-specific keywords" in Azure's guide "Structured outputs". */
export const AZURE_SCHEMAS: SchemaLimits = {
  refuses: refused(...NUMBERS, ...LENGTHS, "pattern", "format", "minItems", "maxItems", ...COUNTS),
};
/** "Schema limitations" in Cerebras's guide "Structured outputs". */
export const CEREBRAS_SCHEMAS: SchemaLimits = { refuses: refused("pattern", "format", "minItems", "maxItems") };
/** "minItems is not supported" (github.com/i-am-bee/beeai-framework/issues/1215). */
export const GROQ_SCHEMAS: SchemaLimits = { refuses: refused("minItems", "maxItems", ...COUNTS) };

/** Moves the keywords that an upstream refuses into the schemas' descriptions, as Anthropic's own packages do. */
export function fitSchemas(request: UpstreamRequest, limits: SchemaLimits | undefined) {
  const { response_format: format, tools, model } = request;
  if (limits === undefined || limits.models?.test(model) === false) return { request, ignored: [] };
  const moved = new Set<string>();
  const adapt = (schema: JsonObject, place: string) => describeRefused(schema, limits, place, moved);
  const answer = format?.type === "json_schema" ? format.json_schema : undefined;
  const isEnforced = answer?.strict === true || limits.enforcesAnswers === true;
  const schema = isEnforced ? answer?.schema : undefined;
  const fittedTools = tools?.map((tool) => {
    const { parameters, strict } = tool.function;
    if (strict !== true || parameters === undefined) return tool;
    return { ...tool, function: { ...tool.function, parameters: adapt(parameters, "tools.function.parameters") } };
  });
  const fittedFormat = answer &&
    schema && {
      type: "json_schema" as const,
      json_schema: { ...answer, schema: adapt(schema, "response_format.json_schema.schema") },
    };
  if (moved.size === 0) return { request, ignored: [] };
  const fitted = { ...request, ...(fittedTools && { tools: fittedTools }) };
  return { request: fittedFormat ? { ...fitted, response_format: fittedFormat } : fitted, ignored: [...moved] };
}

/** Keywords whose value is a schema or a list of schemas, and keywords whose value has schemas by their names. */
const NESTED = new Set(["items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf"]);
const NAMED = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);

function describeRefused(schema: JsonObject, limits: SchemaLimits, place: string, moved: Set<string>) {
  const adapt = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(adapt);
    return isObject(value) ? describeRefused(value, limits, place, moved) : value;
  };
  const kept: Record<string, unknown> = {};
  const told: string[] = [];
  for (const [keyword, value] of Object.entries(schema)) {
    const taken = Object.hasOwn(limits.refuses, keyword) ? limits.refuses[keyword] : undefined;
    if (taken !== undefined && !taken.includes(value)) {
      told.push(`${keyword}: ${JSON.stringify(value)}`);
      moved.add(`${place}.${keyword}`);
    } else if (NESTED.has(keyword)) {
      kept[keyword] = adapt(value);
    } else if (NAMED.has(keyword) && isObject(value)) {
      // Not assigned one by one: a name may be `__proto__`.
      kept[keyword] = Object.fromEntries(Object.entries(value).map(([name, one]) => [name, adapt(one)]));
    } else kept[keyword] = value;
  }
  if (told.length === 0) return kept;
  const said = typeof kept.description === "string" ? `${kept.description}\n\n` : "";
  return { ...kept, description: `${said}{${told.join(", ")}}` };
}
