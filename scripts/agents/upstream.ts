/** Upstream that plays a model: it answers with the scripted tool calls one by one, and then with a text. */
import type { ServerResponse } from "node:http";
import { sendJson, startUpstream } from "../../test/support/upstream.ts";
import type { ScriptedCall, TokenUsage, UpstreamWire } from "./wires.ts";

/** Names of the models at the scripted upstream. */
export const SCRIPTED = { chat: "scripted", embeddings: "scripted-embeddings" };
/** Whole credits per million tokens: every charge is a whole number of micro-credits. */
export const PRICE = { input: 3, cachedInput: 1, output: 7 };
/** Text that ends the conversation, streamed in its words. */
export const LAST_TEXT = "All of it is done.";

const ID_PREFIX = "call_scripted_";

/** Fault of the upstream: it is down for a time, cuts its first answer after two words, or does not end any. */
export type Fault = "down" | "cut" | "held";
const DOWN_MS = 30_000;

interface ScriptedUpstream {
  baseUrl: string;
  /** Resolves once an answer is held; its value resolves when the connection of that answer is closed. */
  held: Promise<{ closed: Promise<number> }>;
  /** Micro-credits that all answers cost by their usage. */
  microCredits(): number;
  answers(): number;
  /** True if a request had an image. */
  hasImage(): boolean;
  /** Scripted tools that the client did not offer, with those that it did. */
  missing(): string[];
  close(): Promise<void>;
}

/** Starts an upstream that plays the calls on a wire. */
export async function startScriptedUpstream(
  wire: UpstreamWire,
  calls: readonly ScriptedCall[],
  fault: Fault | undefined,
): Promise<ScriptedUpstream> {
  const upstream = await startUpstream();
  const usages: TokenUsage[] = [];
  const missing = new Set<string>();
  const { promise: held, resolve: hold } = Promise.withResolvers<{ closed: Promise<number> }>();
  let hasImage = false;
  let upAtMs: number | undefined;
  let count = 0;
  let embeddings = 0;
  upstream.behave(SCRIPTED.chat, ({ body, response, closed }) => {
    upAtMs ??= Date.now() + DOWN_MS;
    if (fault === "down" && Date.now() < upAtMs) {
      return sendJson(response, 503, { error: { message: "The model is overloaded.", type: "overloaded_error" } });
    }
    hasImage ||= IMAGE.test(JSON.stringify(body.messages ?? body.input));
    const tools = wire.tools(body);
    const index = finishedCalls(wire.results(body));
    // Requests without tools are for titles and summaries.
    const call = tools.length === 0 ? undefined : calls[index];
    if (call !== undefined && !tools.includes(call.tool)) missing.add(`${call.tool} (offered: ${tools.join(", ")})`);
    // Each answer has a usage of its own, so that no charge can stand for another one.
    const usage = { prompt: 12 + 2 * count, cached: count, output: 5 + count };
    const id = `${ID_PREFIX}${count}`;
    const events = wire.events({ id, model: SCRIPTED.chat, call, text: LAST_TEXT.split(/(?<= )/), usage });
    const isCut = fault === "cut" && count === 0;
    count += 1;
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (isCut || fault === "held") {
      const second = events.findIndex((event) => JSON.stringify(event).includes('"of "'));
      writeEvents(response, events.slice(0, second + 1));
      if (isCut) setTimeout(() => response.destroy(), 100);
      return hold({ closed });
    }
    usages.push(usage);
    writeEvents(response, events);
    response.end(wire.kind === "openai-compatible" ? "data: [DONE]\n\n" : "");
  });
  upstream.behave(SCRIPTED.embeddings, ({ body, response }) => {
    // Near the least that a hold of a short text allows, however many answers there were before.
    const usage = { prompt: 12 + embeddings, cached: 0, output: 0 };
    embeddings += 1;
    usages.push(usage);
    const inputs = Array.isArray(body.input) ? body.input : [body.input];
    const data = inputs.map((_, index) => ({ object: "embedding", index, embedding: [0.6, 0.8] }));
    const total = { prompt_tokens: usage.prompt, total_tokens: usage.prompt };
    sendJson(response, 200, { object: "list", model: SCRIPTED.embeddings, data, usage: total });
  });
  return {
    baseUrl: upstream.baseUrl,
    held,
    microCredits: () => usages.reduce((sum, usage) => sum + costOf(usage), 0),
    answers: () => usages.length,
    hasImage: () => hasImage,
    missing: () => [...missing],
    close: () => upstream.close(),
  };
}

/** Counts the scripted calls that have a result. Some clients of Gemini's API leave out the ids of calls. */
function finishedCalls(results: readonly (string | undefined)[]): number {
  const named = new Set(results.filter((id) => id?.startsWith(ID_PREFIX)));
  return named.size > 0 ? named.size : results.filter((id) => id?.startsWith("call_")).length;
}

const IMAGE = /"type":"(image_url|input_image|image)"/;

function writeEvents(response: ServerResponse, events: readonly Record<string, unknown>[]): void {
  for (const event of events) {
    if (typeof event.type === "string") response.write(`event: ${event.type}\n`);
    response.write(`data: ${JSON.stringify(event)}\n\n`);
  }
}

function costOf({ prompt, cached, output }: TokenUsage): number {
  return (prompt - cached) * PRICE.input + cached * PRICE.cachedInput + output * PRICE.output;
}
