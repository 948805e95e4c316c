import type { Delta, FinishReason } from "../../api/chat/completion.ts";
import type { Tool } from "../../api/chat/request.ts";
import type { UpstreamRequest } from "../provider.ts";
import { exampleOf } from "./example.ts";
import { indexOfFirst, lastUserText, textTokens } from "./text.ts";

/** An answer of the sandbox. Each piece has one token. */
export interface Script {
  pieces: Delta[];
  finishReason: FinishReason;
}

const TOKENS_MAX = 65_536;

/** Writes a tool call or JSON if the request asks for it, else the tokens. Throws UpstreamError for its schema. */
export function toScript(request: UpstreamRequest, tokens: Iterable<string>): Script {
  const tool = calledTool(request);
  const json = jsonOf(request, tool);
  if (json === undefined) return textScript(request, tokens);
  return tool === undefined ? textScript(request, textTokens(json)) : toolScript(request, tool.function.name, json);
}

/** Throws UpstreamError `unsupported` if the sandbox cannot follow the schema of a request. */
export function checkSchema(request: UpstreamRequest): void {
  jsonOf(request, calledTool(request));
}

/** Converts an answer to a refusal with the same text. */
export function toRefusal(script: Script): Script {
  const pieces = script.pieces.map((delta) => (typeof delta.content === "string" ? { refusal: delta.content } : delta));
  return { ...script, pieces };
}

function textScript(request: UpstreamRequest, tokens: Iterable<string>): Script {
  const { taken, isCut } = take(tokens, request.max_tokens);
  const stopped = upToStop(taken, request.stop);
  const pieces = (stopped ?? taken).map((content) => ({ content }));
  return { pieces, finishReason: isCut && stopped === undefined ? "length" : "stop" };
}

function toolScript(request: UpstreamRequest, name: string, json: string): Script {
  const { taken, isCut } = take(textTokens(json), request.max_tokens - 1);
  const earlier = request.messages.flatMap(({ tool_calls: calls = [] }) => calls);
  const id = `call_sandbox_${earlier.length + 1}`;
  const head: Delta = { tool_calls: [{ index: 0, id, type: "function", function: { name, arguments: "" } }] };
  const pieces = taken.map((piece): Delta => ({ tool_calls: [{ index: 0, function: { arguments: piece } }] }));
  return { pieces: [head, ...pieces], finishReason: isCut ? "length" : "tool_calls" };
}

function take(tokens: Iterable<string>, count: number): { taken: string[]; isCut: boolean } {
  const taken: string[] = [];
  for (const token of tokens) {
    if (taken.length >= Math.min(count, TOKENS_MAX)) return { taken, isCut: true };
    taken.push(token);
  }
  return { taken, isCut: false };
}

/** Returns the tokens before the first stop sequence; undefined if the text contains none. */
function upToStop(tokens: readonly string[], stop: string | readonly string[] | undefined): string[] | undefined {
  const stops = (typeof stop === "string" ? [stop] : (stop ?? [])).filter((sequence) => sequence !== "");
  if (stops.length === 0) return undefined;
  const text = tokens.join("");
  const found = stops.map((sequence) => indexOfFirst(sequence, text)).filter((index) => index >= 0);
  return found.length === 0 ? undefined : [...textTokens(text.slice(0, Math.min(...found)))];
}

/** Returns the arguments of a tool call, or the text of structured output, in several tokens; undefined for other answers. */
function jsonOf({ tools, response_format: format }: UpstreamRequest, tool: Tool | undefined): string | undefined {
  if (tool === undefined && (format === undefined || format.type === "text")) return undefined;
  const [schema, param] =
    tool !== undefined
      ? [tool.function.parameters, `tools[${tools?.indexOf(tool)}].function.parameters`]
      : [format?.type === "json_schema" ? format.json_schema.schema : undefined, "response_format.json_schema.schema"];
  return JSON.stringify(exampleOf(schema ?? { type: "object" }, param), undefined, 1);
}

/** A word that may be the name of a function, by OpenAI's rules. */
const NAME = /[\w.-]{1,64}/g;

/** Chooses the tool that is demanded, else one that the last user message names, else the first. None after a result. */
function calledTool({ messages, tools, tool_choice }: UpstreamRequest): Tool | undefined {
  if (tools === undefined || tool_choice === "none" || messages.at(-1)?.role === "tool") return undefined;
  if (typeof tool_choice === "object") {
    return tools.find((tool) => tool.function.name === tool_choice.function.name) ?? tools[0];
  }
  // Reads the text once, not once per tool.
  const names = new Set(
    lastUserText(messages)
      .match(NAME)
      ?.flatMap((name) => [name, name.replace(/^[.-]{1,64}/, "").replace(/[.-]{1,64}$/, "")]),
  );
  return tools.find((tool) => names.has(tool.function.name)) ?? tools[0];
}
