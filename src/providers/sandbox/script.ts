import type { Delta, FinishReason } from "../../contract/completion.ts";
import { UpstreamError, type UpstreamRequest } from "../provider.ts";
import { minimalInstance } from "./instance.ts";
import { tokensOf } from "./tokens.ts";
import { calledTool, callId } from "./tools.ts";
import { UnsupportedSchemaError } from "./unsupported.ts";

/** An answer as the sandbox will give it: one piece a token. */
export interface Script {
  pieces: Delta[];
  finishReason: FinishReason;
}

/**
 * Writes an answer's script, at most `max_tokens` long: a tool call where one is due, JSON where a format asks for it,
 * else the given tokens up to a stop sequence.
 */
export function toScript(request: UpstreamRequest, tokens: Iterable<string>): Script {
  const tool = calledTool(request);
  if (tool !== undefined) {
    const { name, parameters } = tool.function;
    return toolScript(request, name, jsonOf(parameters ?? { type: "object" }));
  }
  const format = request.response_format;
  if (format?.type === "json_object") return textScript(request, tokensOf(jsonOf({ type: "object" })));
  if (format?.type === "json_schema") {
    return textScript(request, tokensOf(jsonOf(format.json_schema.schema ?? { type: "object" })));
  }
  return textScript(request, tokens);
}

/** The tokens that a script has at most, as a refusal. */
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
  const { taken, isCut } = take(tokensOf(json), request.max_tokens - 1);
  const id = callId(request.messages);
  const head: Delta = { tool_calls: [{ index: 0, id, type: "function", function: { name, arguments: "" } }] };
  const rest = taken.map((piece): Delta => ({ tool_calls: [{ index: 0, function: { arguments: piece } }] }));
  return { pieces: [head, ...rest], finishReason: isCut ? "length" : "tool_calls" };
}

function take(tokens: Iterable<string>, count: number): { taken: string[]; isCut: boolean } {
  const taken: string[] = [];
  for (const token of tokens) {
    if (taken.length >= count) return { taken, isCut: true };
    taken.push(token);
  }
  return { taken, isCut: false };
}

/** The tokens before the first stop sequence; undefined where there is none. */
function upToStop(tokens: readonly string[], stop: string | readonly string[] | undefined): string[] | undefined {
  const stops = (typeof stop === "string" ? [stop] : (stop ?? [])).filter((sequence) => sequence !== "");
  if (stops.length === 0) return undefined;
  const text = tokens.join("");
  const found = stops.map((sequence) => text.indexOf(sequence)).filter((index) => index >= 0);
  return found.length === 0 ? undefined : [...tokensOf(text.slice(0, Math.min(...found)))];
}

/** A minimal instance of a schema as JSON with white space in it, so that it has more tokens than one. */
function jsonOf(schema: unknown): string {
  try {
    return JSON.stringify(minimalInstance(schema), null, 1).replace(/\n\s*/g, " ");
  } catch (error) {
    if (!(error instanceof UnsupportedSchemaError)) throw error;
    const reason = `The sandbox cannot make an example of this JSON schema: ${error.message}.`;
    throw new UpstreamError("rejected", reason, { publicReason: reason, cause: error });
  }
}
