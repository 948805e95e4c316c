import { formatCount } from "../../format/numbers.ts";

/** The parts of a JSON schema that the reference shows. */
export interface JsonSchema {
  type?: string | string[];
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  /** Media type of a file in a form. */
  contentMediaType?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
}

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema: JsonSchema;
}

type Content = Record<string, { schema: JsonSchema }>;

interface DocumentedOperation {
  operationId: string;
  summary: string;
  description?: string;
  parameters?: Parameter[];
  requestBody?: { content: Content };
  responses: Record<string, { description: string; content?: Content }>;
}

export interface OpenApiDocument {
  info: { version: string };
  paths: Record<string, Record<string, DocumentedOperation>>;
}

/** An operation with its place. */
export interface Operation extends DocumentedOperation {
  method: string;
  path: string;
}

export function operationsOf({ paths }: OpenApiDocument): Operation[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, method: method.toUpperCase(), path })),
  );
}

/** Groups of operations by the beginning of path and method, in the order of the page; the first that fits counts. */
const GROUPS = [
  ["Completions", /^\/v1\/(chat\/completions|completions)/],
  ["Responses", /^\/v1\/responses/],
  ["Messages", /^\/v1\/messages/],
  ["Gemini", /^\/(v1beta\/|v1\/models\/\{model\} post)/],
  ["Embeddings", /^\/v1\/embeddings/],
  ["Images and audio", /^\/v1\/(images|audio)/],
  ["Models and credits", /^\/(v1\/(models|usage|key)|key)/],
  ["Administration: requests and usage", /^\/admin\/v1\/(overview|search|requests|models|routes|margins|latencies)/],
  [
    "Administration: credits",
    /^\/admin\/v1\/(organizations\/\{id\}\/(grants|revocations|credits|allowances)|.*statement)/,
  ],
  [
    "Administration: payments and vouchers",
    /^\/admin\/v1\/(organizations\/\{id\}\/(payment|checkouts|top-up|redemptions)|voucher-batches)/,
  ],
  ["Administration: budgets", /^\/admin\/v1\/organizations\/\{id\}\/budgets/],
  ["Administration: organizations", /^\/admin\/v1\/organizations/],
  ["Administration: tokens", /^\/admin\/v1\/(tokens|playground)/],
  ["Administration: warnings", /^\/admin\/v1\/(receivers|deliveries)/],
  ["Administration: people and audit log", /^\/admin\/v1\/(service|session|sessions|operators|identities|audit)/],
] as const;

/** Returns the operations by group; those that fit none are the last group. */
export function groupedOperations(operations: readonly Operation[]): [title: string, operations: Operation[]][] {
  const titleOf = ({ path, method }: Operation) =>
    GROUPS.find(([, pattern]) => pattern.test(`${path} ${method.toLowerCase()}`))?.[0] ?? "Others";
  const grouped = Map.groupBy(operations, titleOf);
  return [...GROUPS.map(([title]) => title), "Others" as const].flatMap((title) => {
    const found = grouped.get(title);
    return found === undefined ? [] : [[title, found] satisfies [string, Operation[]]];
  });
}

/** Names the type of a value: `string or null`, `list of objects`, `"auto" or "none"`. */
export function typeLabel({
  type,
  enum: values,
  const: constant,
  items,
  anyOf,
  oneOf,
  properties,
  contentMediaType,
}: JsonSchema): string {
  const alternatives = anyOf ?? oneOf;
  if (alternatives !== undefined) return [...new Set(alternatives.map(typeLabel))].join(" or ");
  if (constant !== undefined) return JSON.stringify(constant);
  if (values !== undefined) return values.map((value) => JSON.stringify(value)).join(" or ");
  if (items !== undefined)
    return `list of ${typeLabel(items).replace(/^(object|string|number|integer|list)\b/, "$1s")}`;
  if (Array.isArray(type)) return type.join(" or ");
  if (contentMediaType !== undefined) return "file";
  return type ?? (properties === undefined ? "any value" : "object");
}

/** Says which values are allowed: `1 to 4096`, `at most 200 characters`. */
export function boundsLabel(schema: JsonSchema): string {
  const inner = (schema.anyOf ?? []).filter(({ type }) => type !== "null");
  if (inner.length === 1 && inner[0] !== undefined) return boundsLabel(inner[0]);
  const { minimum, maximum, minLength, maxLength, minItems, maxItems } = schema;
  const parts = [
    rangeLabel(minimum, maximum),
    rangeLabel(minLength, maxLength, "character", "characters"),
    rangeLabel(minItems, maxItems, "entry", "entries"),
    schema.default === undefined ? "" : `default ${JSON.stringify(schema.default)}`,
  ];
  return parts.filter((part) => part !== "").join(", ");
}

function rangeLabel(least: number | undefined, most: number | undefined, one = "", many = ""): string {
  const [from, to] = [least, most].map((bound) => (bound === undefined ? null : formatCount(bound)));
  const unit = (most ?? least) === 1 ? one : many;
  const words =
    from !== null && to !== null ? `${from} to ${to}` : from !== null ? `at least ${from}` : `at most ${to}`;
  return from === null && to === null ? "" : `${words} ${unit}`.trim();
}

/** An object schema inside another one. The label says which alternative it is: `type "text"`. */
export interface ObjectSchema {
  label: string;
  schema: JsonSchema;
}

/** Returns the object schemas that a value of a schema can have, or that its entries can have. */
export function objectsOf(schema: JsonSchema): ObjectSchema[] {
  const { properties, items, anyOf, oneOf } = schema;
  if (properties !== undefined) return [{ label: tagOf(properties), schema }];
  if (items !== undefined) return objectsOf(items);
  return (anyOf ?? oneOf ?? []).flatMap(objectsOf);
}

/** Returns what tells an alternative apart: the first property with one value. */
function tagOf(properties: Record<string, JsonSchema>): string {
  for (const [name, { enum: values, const: constant = values?.length === 1 ? values[0] : undefined }] of Object.entries(
    properties,
  )) {
    if (constant !== undefined) return `${name} ${JSON.stringify(constant)}`;
  }
  return "";
}

/** Returns the description of a schema, or that of its only alternative to null. */
export function descriptionOf({ description, anyOf = [] }: JsonSchema): string {
  return description ?? anyOf.find((one) => one.description !== undefined)?.description ?? "";
}

/** Returns a query with the required parameters, for the end of a path. */
export function sampleQueryOf(parameters: readonly Parameter[]): string {
  const required = parameters.filter(({ in: place, required: isRequired }) => place === "query" && isRequired);
  const query = required.map(({ name, schema }) => `${name}=${sampleOf(schema)}`).join("&");
  return query && `?${query}`;
}

/** Returns a value with the required fields of a schema. */
export function sampleOf(schema: JsonSchema): unknown {
  const { type, enum: values, const: constant, properties, required = [], items, anyOf, oneOf } = schema;
  const [first] = anyOf ?? oneOf ?? [];
  if (first !== undefined) return sampleOf(first);
  if (constant !== undefined || values !== undefined) return constant ?? values?.[0];
  if (properties !== undefined) {
    return Object.fromEntries(required.map((name) => [name, sampleOf(properties[name] ?? {})]));
  }
  if (items !== undefined) return [sampleOf(items)];
  if (type === "integer" || type === "number") return Math.max(1, schema.minimum ?? 1);
  if (type === "boolean") return true;
  return type === "object" ? {} : "…";
}
