import { pick } from "../chat/decode.ts";
import {
  type InputItem,
  REASONING_FIELDS,
  type ResponsesRequest,
  type ResponsesTool,
  TEXT_FIELDS,
  TYPED_FIELDS,
} from "./request.ts";

/** Names that can be repeated in a header. */
export const FIELD_NAME = /^\w{1,64}$/;

const NO_FIELDS: ReadonlySet<string> = new Set();

/** Clients such as Codex offer it with each request, and the model need not use it. Its searches would not be charged. */
export const WEB_SEARCH = "web_search";

/**
 * Copies only the fields of the schema and the tools that the client runs, because upstreams that speak this wire receive
 * the copy. Returns the paths of the others.
 */
export function withKnownFields(asked: ResponsesRequest): { known: ResponsesRequest; unknown: ReadonlySet<string> } {
  const unknown = new Set<string>();
  const known = <T extends object>(value: T, fields: ReadonlySet<string>, path: string): T =>
    pick(value, fields, (name) => {
      if (FIELD_NAME.test(name)) unknown.add(`${path}.${name}`);
    });
  const ofType = <T extends { type: string }>(value: T, path: string): T => {
    return known(value, TYPED_FIELDS.get(value.type) ?? NO_FIELDS, path);
  };
  const ofTools = (tools: readonly ResponsesTool[], path: string): ResponsesTool[] =>
    tools.flatMap((given): ResponsesTool[] => {
      if (given.type === WEB_SEARCH) {
        unknown.add(`${path}.${WEB_SEARCH}`);
        return [];
      }
      const tool = ofType(given, path);
      return tool.type === "namespace"
        ? [{ ...tool, tools: tool.tools.map((one) => ofType(one, `${path}.tools`)) }]
        : [tool];
    });
  const ofParts = <T>(parts: T): T =>
    Array.isArray(parts) ? (parts.map((part) => ofType(part, "input.content")) as T) : parts;
  const ofItem = (given: InputItem): InputItem => {
    const item = ofType(given, "input");
    if (item.type === "message") return { ...item, content: ofParts(item.content) };
    if ("tools" in item) return { ...item, tools: ofTools(item.tools, "input.tools") };
    return "output" in item ? { ...item, output: ofParts(item.output) } : item;
  };
  const { input, tools, text, reasoning } = asked;
  return {
    unknown,
    known: {
      ...asked,
      input: typeof input === "string" ? input : input.map(ofItem),
      ...(tools && { tools: ofTools(tools, "tools") }),
      ...(text && { text: known(text, TEXT_FIELDS, "text") }),
      ...(reasoning && { reasoning: known(reasoning, REASONING_FIELDS, "reasoning") }),
    },
  };
}
