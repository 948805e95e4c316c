/** Upstream that plays a model: it answers with the scripted tool calls one by one, and then with a text. */
import { sendJson, startUpstream } from "../../test/support/upstream.ts";
import type { ScriptedCall, TokenUsage, UpstreamWire } from "./wires.ts";

/** Names of the models at the scripted upstream. */
export const SCRIPTED = { chat: "scripted", embeddings: "scripted-embeddings" };
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

/** Starts an upstream that plays the calls on a wire. */
export async function startScriptedUpstream(
  wire: UpstreamWire,
  calls: readonly ScriptedCall[],
): Promise<ScriptedUpstream> {
  const upstream = await startUpstream();
  const usages: TokenUsage[] = [];
  const missing = new Set<string>();
  upstream.behave(SCRIPTED.chat, ({ body, response }) => {
    const tools = wire.tools(body);
    const index = new Set(wire.results(body).filter((id) => id?.startsWith(ID_PREFIX))).size;
    // Requests without tools are for titles and summaries.
    const call = tools.length === 0 ? undefined : calls[index];
    if (call !== undefined && !tools.includes(call.tool)) missing.add(`${call.tool} (offered: ${tools.join(", ")})`);
    // Each answer has a usage of its own, so that no charge can stand for another one.
    const count = usages.length;
    const usage = { prompt: 12 + 2 * count, cached: count, output: 5 + count };
    usages.push(usage);
    const turn = { id: `${ID_PREFIX}${count}`, model: SCRIPTED.chat, call, text: LAST_TEXT.split(/(?<= )/), usage };
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const event of wire.events(turn)) {
      if (typeof event.type === "string") response.write(`event: ${event.type}\n`);
      response.write(`data: ${JSON.stringify(event)}\n\n`);
    }
    response.end(wire.kind === "openai-compatible" ? "data: [DONE]\n\n" : "");
  });
  upstream.behave(SCRIPTED.embeddings, ({ body, response }) => {
    const usage = { prompt: 12 + usages.length, cached: 0, output: 0 };
    usages.push(usage);
    const inputs = Array.isArray(body.input) ? body.input : [body.input];
    const data = inputs.map((_, index) => ({ object: "embedding", index, embedding: [0.6, 0.8] }));
    const total = { prompt_tokens: usage.prompt, total_tokens: usage.prompt };
    sendJson(response, 200, { object: "list", model: SCRIPTED.embeddings, data, usage: total });
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
