import type { Needs } from "./attacks/attack.ts";

/** A request with a body that is as expensive as possible for the service. */
export interface WorstBody {
  name: string;
  needs: Needs;
  path: string;
  headers?: Record<string, string>;
  /** Text of the body; `model` is the model of a completion. */
  text(model: string): string;
  /** The limit that rejects it with 413; absent if the body is within all limits and is parsed. */
  exceeds?: "bytes" | "depth" | "values" | "messages" | "tools";
}

const MEBIBYTE = 1024 * 1024;
/** A body within the default limit of 20 MiB. */
const LONG = 19 * MEBIBYTE;
/** Values of a body within the limit of 100,000, with room for the rest of the request. */
const MANY = 99_900;

const hello = '{"role":"user","content":"hello"}';
const completion = (model: string, fields: string, messages = hello) =>
  `{"model":"${model}","messages":[${messages}]${fields}}`;
const repeated = (text: string, count: number) => Array(Math.floor(count)).fill(text).join(",");
const numbered = (count: number, one: (index: number) => string) =>
  Array.from({ length: Math.floor(count) }, (_, at) => one(at)).join(",");
const filled = (text: string, bytes: number) => text.repeat(Math.floor(bytes / text.length));
const tool = (parameters: string) => `{"type":"function","function":{"name":"f","parameters":${parameters}}}`;
const schema = (text: string) =>
  `,"response_format":{"type":"json_schema","json_schema":{"name":"f","schema":${text}}}`;
const saying = (content: string) => `{"role":"user","content":${content}}`;

const COMPLETIONS = "/v1/chat/completions";
const fromCaller = (name: string, text: WorstBody["text"], more: Partial<WorstBody> = {}): WorstBody => ({
  name,
  needs: "token",
  path: COMPLETIONS,
  text,
  ...more,
});
const fromNobody = (name: string, text: WorstBody["text"], exceeds?: WorstBody["exceeds"]): WorstBody => ({
  name,
  needs: "nothing",
  path: "/admin/v1/session",
  headers: { "x-tollgate-console": "1" },
  text,
  ...(exceeds !== undefined && { exceeds }),
});

const ANONYMOUS = [
  fromNobody("nested, 20 MiB", () => "[".repeat(20 * MEBIBYTE), "bytes"),
  fromNobody("nested, 16 KiB", () => "[".repeat(16 * 1024), "depth"),
  fromNobody("wide, 16 KiB", () => `{"a":[${repeated("1", 8_000)}]}`),
  fromNobody("empty objects, 16 KiB", () => `{"a":[${repeated("{}", 5_000)}]}`),
  fromNobody("a token of escapes, 16 KiB", () => `{"token":"${filled("\\u0000", 16_000)}"}`),
];

const SHAPES = [
  fromCaller(
    "nested tool parameters, 17 MiB",
    (model) => completion(model, `,"tools":[${tool(filled('{"a":', 17 * MEBIBYTE))}]`),
    {
      exceeds: "depth",
    },
  ),
  fromCaller("empty objects, 19 MiB", (model) => completion(model, `,"x":[${filled("{},", LONG)}{}]`), {
    exceeds: "values",
  }),
  fromCaller("680,000 messages", (model) => completion(model, "", repeated('{"role":"user","content":""}', 680_000)), {
    exceeds: "values",
  }),
  fromCaller("10,001 messages", (model) => completion(model, "", repeated(hello, 10_001)), { exceeds: "messages" }),
  fromCaller("1,025 tools", (model) => completion(model, `,"tools":[${repeated(tool("{}"), 1_025)}]`), {
    exceeds: "tools",
  }),
  fromCaller("lists of 120 levels side by side", (model) =>
    completion(model, `,"tools":[${tool(`{"a":[${repeated("[".repeat(120) + "]".repeat(120), MANY / 121 - 10)}]}`)}]`),
  ),
  fromCaller("numbers in an unknown field", (model) => completion(model, `,"x":[${repeated("1", MANY)}]`)),
  fromCaller("empty objects in tool parameters", (model) =>
    completion(model, `,"tools":[${tool(`{"a":[${repeated("{}", MANY / 2)}]}`)}]`),
  ),
  fromCaller("keys of tool parameters, 190 characters each", (model) =>
    completion(
      model,
      `,"tools":[${tool(`{${numbered(MANY, (index) => `"${String(index).padStart(190, "k")}":1`)}}`)}]`,
    ),
  ),
  fromCaller("the same key", (model) => completion(model, `,"x":{${repeated('"a":1', MANY)}}`)),
  fromCaller("keys that are numbers", (model) =>
    completion(model, `,"x":{${numbered(MANY, (index) => `"${index * 40_007}":1`)}}`),
  ),
];

const MESSAGES = [
  fromCaller("10,000 messages of parts", (model) =>
    completion(model, "", repeated(saying('[{"type":"text","text":"a"}]'), 10_000)),
  ),
  fromCaller("a message of parts", (model) =>
    completion(model, "", saying(`[${repeated('{"type":"text","text":"a"}', MANY / 3 - 10)}]`)),
  ),
  fromCaller("a message of tool calls", (model) => {
    const call = '{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}';
    return completion(model, "", `${hello},{"role":"assistant","tool_calls":[${repeated(call, MANY / 6)}]}`);
  }),
  fromCaller("1,024 tools", (model) => {
    const properties = numbered(40, (index) => `"p${index}":{"type":"string"}`);
    return completion(model, `,"tools":[${repeated(tool(`{"type":"object","properties":{${properties}}}`), 1_024)}]`);
  }),
  fromCaller(
    "searches in 5,000 items",
    (model) => {
      const item = `{"type":"additional_tools","role":"developer","tools":[${repeated('{"type":"web_search"}', 5)}]}`;
      const others = '"tools":[{"type":"function","name":"f"}]';
      return `{"model":"${model}","input":[${repeated(item, 5_000)},${hello}],${others}}`;
    },
    { path: "/v1/responses" },
  ),
  fromCaller("a logit bias", (model) =>
    completion(model, `,"logit_bias":{${numbered(MANY, (index) => `"${index}":1`)}}`),
  ),
];

const TEXTS = [
  fromCaller("a text", (model) => completion(model, "", saying(`"${filled("a", LONG)}"`))),
  fromCaller("a text, with an idempotency key", (model) => completion(model, "", saying(`"${filled("a", LONG)}"`)), {
    headers: { "idempotency-key": "worst" },
  }),
  fromCaller("a text of escaped line breaks", (model) => completion(model, "", saying(`"${filled("\\n", LONG)}"`))),
  fromCaller("a text of escaped quotes", (model) => completion(model, "", saying(`"${filled('\\"', LONG)}"`))),
  fromCaller("a text of escaped surrogates", (model) =>
    completion(model, "", saying(`"${filled("\\ud83d\\ude00", LONG)}"`)),
  ),
  fromCaller("a text of three-byte characters", (model) =>
    completion(model, "", saying(`"${filled("日", LONG / 3)}"`)),
  ),
  fromCaller("an unknown role", (model) => completion(model, "", `{"role":"${filled("a", LONG)}","content":"a"}`)),
  fromCaller("a model's name", () => completion(filled("a", LONG), "")),
  fromCaller("an image", (model) =>
    completion(
      model,
      "",
      saying(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,${filled("A", LONG)}"}}]`),
    ),
  ),
  fromCaller("a number of digits", (model) => completion(model, `,"x":${filled("1", LONG)}`)),
  fromCaller("white space", (model) => `${" ".repeat(LONG)}${completion(model, "")}`),
  fromCaller("a text that never ends", (model) => `{"model":"${model}","messages":[{"content":"${filled("a", LONG)}`),
  fromCaller("tool parameters of a long text", (model) =>
    completion(model, `,"tools":[${tool(`{"a":"${filled("\\n", LONG)}"}`)}]`),
  ),
];

const SCHEMAS = [
  fromCaller("a schema with a pattern and a length", (model) =>
    completion(
      model,
      schema(
        '{"type":"object","required":["a"],"properties":{"a":{"type":"string","pattern":"^(a+)+b$","minLength":9000}}}',
      ),
    ),
  ),
  fromCaller("a schema of alternatives", (model) =>
    completion(model, schema(`{"anyOf":[${repeated('{"type":"string","pattern":"a+b+c+"}', 20_000)}]}`)),
  ),
  fromCaller("a schema of enumerations", (model) =>
    completion(model, schema(`{"allOf":[${repeated(`{"enum":[${numbered(900, String)}]}`, 100)}]}`)),
  ),
  fromCaller("a schema that names itself", (model) =>
    completion(
      model,
      schema(`{"$defs":{"a":{"allOf":[${repeated('{"$ref":"#/$defs/a"}', 20_000)}]}},"$ref":"#/$defs/a"}`),
    ),
  ),
];

const ADMINISTRATORS: WorstBody[] = [
  {
    name: "wide, 1 MiB",
    needs: "admin token",
    path: "/admin/v1/organizations",
    text: () => `{"name":[${repeated("1", MANY)}]}`,
  },
  {
    name: "a name of 1 MiB",
    needs: "admin token",
    path: "/admin/v1/organizations",
    text: () => `{"name":"${filled("\\n", MEBIBYTE - 100)}"}`,
  },
];

/** The worst known bodies, sent by the attack suite and measured by `npm run bench:bodies`. */
export const WORST_BODIES: readonly WorstBody[] = [
  ...ANONYMOUS,
  ...SHAPES,
  ...MESSAGES,
  ...TEXTS,
  ...SCHEMAS,
  ...ADMINISTRATORS,
];
