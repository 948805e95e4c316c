import type { Model } from "../../../../src/api/model.ts";
import { formatCount } from "../../format/numbers.ts";
import type { CallBody, FunctionTool } from "../../snippets/snippets.ts";

/** Settings of the next request to each model. */
export interface Settings {
  instructions: string;
  /** Null for the default of the model. */
  temperature: number | null;
  /** Text of the field; empty for no explicit maximum. */
  maxTokens: string;
  /** Tools as JSON; empty for none. */
  tools: string;
  /** JSON schema of the answer; empty for text. */
  schema: string;
}

export const FIRST_SETTINGS: Settings = { instructions: "", temperature: null, maxTokens: "", tools: "", schema: "" };

const priceOf = ({ pricing_details: { input, output } }: Model) => input + output;
const isSandbox = ({ category }: Model) => Number(category === "sandbox");

/** Returns the ID of the model with the lowest prices; one of the sandbox only if there is no other. */
export function cheapestModel(models: readonly Model[]): string | undefined {
  return models.toSorted((a, b) => isSandbox(a) - isSandbox(b) || priceOf(a) - priceOf(b))[0]?.id;
}

/** Returns the maximum of `max_tokens` for a model. `setting` is the maximum of the service, or null. */
export function maxTokensBound(setting: number | null, model: Pick<Model, "max_output_tokens">): number {
  return Math.min(setting ?? model.max_output_tokens, model.max_output_tokens);
}

/** Reads a whole number, in which commas can only group thousands; NaN for another text. */
function countIn(text: string): number {
  return /^\d+$|^\d{1,3}(,\d{3})+$/.test(text) ? Number(text.replaceAll(",", "")) : Number.NaN;
}

/** Returns the error of the `max_tokens` field; null if it is valid. `bound` is null while it is unknown. */
export function maxTokensError(text: string, bound: number | null): string | null {
  const count = countIn(text);
  const isRight = text === "" || (count >= 1 && (bound === null || count <= bound));
  const range = bound === null ? "from 1" : `from 1 to ${formatCount(bound)}`;
  return isRight ? null : `Enter a whole number ${range}, or leave blank.`;
}

/** Parses JSON; undefined for a text that is none. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Reads tools: a list of functions with name, description and parameters, or of tools as the API takes them. */
export function toolsIn(text: string): FunctionTool[] | null {
  if (text.trim() === "") return [];
  const list = parsed(text);
  if (!Array.isArray(list)) return null;
  const functions = list.map((tool) => (isObject(tool) && isObject(tool.function) ? tool.function : tool));
  if (!functions.every((one) => isObject(one) && typeof one.name === "string" && one.name !== "")) return null;
  return functions.map((one) => ({ type: "function", function: one as FunctionTool["function"] }));
}

export function toolsError(text: string): string | null {
  return toolsIn(text) === null ? "Enter a JSON list of functions, each with a name, or leave blank." : null;
}

export function schemaError(text: string): string | null {
  return text.trim() === "" || isObject(parsed(text)) ? null : "Enter a JSON schema, or leave blank.";
}

/** Returns whether all settings can be sent to a model with this maximum of `max_tokens`. */
export function areRight({ maxTokens, tools, schema }: Settings, bound: number | null): boolean {
  return [maxTokensError(maxTokens, bound), toolsError(tools), schemaError(schema)].every((error) => error === null);
}

/** Returns the body of a request to a model. */
export function bodyOf(settings: Settings, model: string, messages: CallBody["messages"]): CallBody {
  const { instructions, temperature, maxTokens, schema } = settings;
  const tools = toolsIn(settings.tools) ?? [];
  const json_schema = { name: "answer", schema: parsed(schema) as Record<string, unknown> };
  return {
    model,
    messages,
    ...(instructions.trim() !== "" && { instructions }),
    ...(temperature !== null && { temperature }),
    ...(maxTokens !== "" && { max_tokens: countIn(maxTokens) }),
    ...(tools.length > 0 && { tools }),
    ...(schema.trim() !== "" && { response_format: { type: "json_schema" as const, json_schema } }),
  };
}
