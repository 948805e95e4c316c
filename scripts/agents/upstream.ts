/** Upstream that plays a model: it answers with the scripted tool calls one by one, and then with a text. */
import type { ServerResponse } from "node:http";
import { sendJson, startUpstream } from "../../test/support/upstream.ts";

/** A call of one of the agent's tools. */
export interface ScriptedCall {
  tool: string;
  arguments: Record<string, unknown>;
}

/** Name of the model at the scripted upstream. */
export const SCRIPTED_MODEL = "scripted";
/** Whole credits per million tokens: every charge is a whole number of micro-credits. */
export const PRICE = { input: 3, cachedInput: 1, output: 7 };
/** Text that ends the conversation, streamed in its words. */
export const LAST_TEXT = "All of it is done.";

const ID_PREFIX = "call_scripted_";

interface ScriptedUpstream {
  baseUrl: string;
  /** Micro-credits that all answers cost by their usage. */
  microCredits(): number;
  answers(): number;
  /** Scripted tools that the client did not offer, with those that it did. */
  missing(): string[];
  close(): Promise<void>;
}

interface TokenUsage {
  prompt: number;
  cached: number;
  output: number;
}

/** Starts an upstream that speaks OpenAI's protocol and plays the calls. */
export async function startScriptedUpstream(calls: readonly ScriptedCall[]): Promise<ScriptedUpstream> {
  const upstream = await startUpstream();
  const usages: TokenUsage[] = [];
  const missing = new Set<string>();
  /** Each answer has a usage of its own, so that no charge can stand for another one. */
  const nextUsage = (): TokenUsage => {
    const count = usages.length;
    const usage = { prompt: 12 + 2 * count, cached: count, output: 5 + count };
    usages.push(usage);
    return usage;
  };
  upstream.behave(SCRIPTED_MODEL, ({ body, response }) => {
    const tools = toolNames(body.tools);
    const index = playedCalls(body.messages);
    // Requests without tools are for titles and summaries.
    const call = tools.length === 0 ? undefined : calls[index];
    if (call !== undefined && !tools.includes(call.tool)) missing.add(`${call.tool} (offered: ${tools.join(", ")})`);
    const chunks = call === undefined ? textChunks() : callChunks(call, index);
    sendAnswer(response, chunks, nextUsage(), body.stream === true);
  });
  return {
    baseUrl: upstream.baseUrl,
    microCredits: () => usages.reduce((sum, usage) => sum + costOf(usage), 0),
    answers: () => usages.length,
    missing: () => [...missing],
    close: () => upstream.close(),
  };
}

function costOf({ prompt, cached, output }: TokenUsage): number {
  return (prompt - cached) * PRICE.input + cached * PRICE.cachedInput + output * PRICE.output;
}

function toolNames(tools: unknown): string[] {
  return ((tools ?? []) as { function?: { name: string } }[]).flatMap((tool) => tool.function?.name ?? []);
}

/** Counts the scripted calls of which the conversation has the results. */
function playedCalls(messages: unknown): number {
  const ids = (messages as { tool_call_id?: string }[]).map((message) => message.tool_call_id);
  return new Set(ids.filter((id) => id?.startsWith(ID_PREFIX))).size;
}

interface Chunk {
  delta: Record<string, unknown>;
  finish_reason: string | null;
}

function textChunks(): Chunk[] {
  const words = LAST_TEXT.split(/(?<= )/);
  const deltas = words.map((content, index) => ({ ...(index === 0 && { role: "assistant" }), content }));
  return [...deltas.map((delta) => ({ delta, finish_reason: null })), { delta: {}, finish_reason: "stop" }];
}

function callChunks({ tool, arguments: values }: ScriptedCall, index: number): Chunk[] {
  const called = { name: tool, arguments: JSON.stringify(values) };
  const calls = [{ index: 0, id: `${ID_PREFIX}${index + 1}`, type: "function", function: called }];
  return [
    { delta: { role: "assistant", content: null, tool_calls: calls }, finish_reason: null },
    { delta: {}, finish_reason: "tool_calls" },
  ];
}

function sendAnswer(response: ServerResponse, chunks: readonly Chunk[], usage: TokenUsage, isStreamed: boolean): void {
  const head = { id: "chatcmpl-scripted", created: 1_700_000_000, model: SCRIPTED_MODEL };
  const total = {
    prompt_tokens: usage.prompt,
    completion_tokens: usage.output,
    total_tokens: usage.prompt + usage.output,
    prompt_tokens_details: { cached_tokens: usage.cached },
  };
  if (!isStreamed) {
    const texts = chunks.flatMap(({ delta }) => delta.content ?? []);
    const message = { ...chunks[0]?.delta, content: texts.length === 0 ? null : texts.join("") };
    const choices = [{ index: 0, message, finish_reason: chunks.at(-1)?.finish_reason }];
    sendJson(response, 200, { ...head, object: "chat.completion", choices, usage: total });
    return;
  }
  const events = [...chunks.map((chunk) => ({ choices: [{ index: 0, ...chunk }] })), { choices: [], usage: total }];
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const event of events) {
    response.write(`data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", ...event })}\n\n`);
  }
  response.end("data: [DONE]\n\n");
}
