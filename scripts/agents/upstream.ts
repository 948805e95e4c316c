/** Upstream that plays a model: it answers with the scripted tool calls one by one, and then with a text. */
import type { ServerResponse } from "node:http";
import { sendJson, startUpstream, type Upstream } from "../../test/support/upstream.ts";
import { type ScriptedCall, type TokenUsage, textEvents, type UpstreamWire } from "./wires.ts";

/** Names of the models at the scripted upstream. */
export const SCRIPTED = {
  ...{ chat: "scripted", embeddings: "scripted-embeddings", images: "scripted-images" },
  ...{ speech: "scripted-speech", transcription: "scripted-transcription" },
};
/** Whole credits per million tokens: every charge is a whole number of micro-credits. */
export const PRICE = { input: 3, cachedInput: 1, output: 7 };
/** Whole micro-credits, as credits: for each image, character and second. */
export const CALL_PRICE = { perImage: 0.001_1, perCharacter: 0.000_007, perSecond: 0.000_013 };
const AUDIO_SECONDS = 3;
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
  /** Kinds of the requests, such as `embeddings`, and `image` if one had an image. */
  seen: ReadonlySet<string>;
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
  const microCredits: number[] = [];
  const seen = new Set<string>();
  const missing = new Set<string>();
  const { promise: held, resolve: hold } = Promise.withResolvers<{ closed: Promise<number> }>();
  let upAtMs: number | undefined;
  let count = 0;
  let embeddings = 0;
  upstream.behave(SCRIPTED.chat, ({ body, response, closed }) => {
    upAtMs ??= Date.now() + DOWN_MS;
    if (fault === "down" && Date.now() < upAtMs) {
      return sendJson(response, 503, { error: { message: "The model is overloaded.", type: "overloaded_error" } });
    }
    if (IMAGE.test(JSON.stringify(body.messages ?? body.input ?? ""))) seen.add("image");
    const isText = body.prompt !== undefined;
    if (isText) seen.add("text completions");
    const tools = wire.tools(body);
    const index = finishedCalls(wire.results(body));
    // Requests without tools are for titles and summaries.
    const call = tools.length === 0 ? undefined : calls[index];
    if (call !== undefined && !tools.includes(call.tool)) missing.add(`${call.tool} (offered: ${tools.join(", ")})`);
    // Each answer has a usage of its own, so that no charge can stand for another one.
    const usage = { prompt: 12 + 2 * count, cached: count, output: 5 + count };
    const id = `${ID_PREFIX}${count}`;
    const turn = { id, model: SCRIPTED.chat, call, text: LAST_TEXT.split(/(?<= )/), usage };
    const events = isText ? textEvents(turn) : wire.events(turn);
    const isCut = fault === "cut" && count === 0;
    count += 1;
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (isCut || fault === "held") {
      const second = events.findIndex((event) => JSON.stringify(event).includes('"of "'));
      writeEvents(response, events.slice(0, second + 1));
      if (isCut) setTimeout(() => response.destroy(), 100);
      return hold({ closed });
    }
    microCredits.push(costOf(usage));
    writeEvents(response, events);
    response.end(wire.kind === "openai-compatible" ? "data: [DONE]\n\n" : "");
  });
  upstream.behave(SCRIPTED.embeddings, ({ body, response }) => {
    // Near the least that a hold of a short text allows, however many answers there were before.
    const usage = { prompt: 12 + embeddings, cached: 0, output: 0 };
    embeddings += 1;
    seen.add("embeddings");
    microCredits.push(costOf(usage));
    const inputs = Array.isArray(body.input) ? body.input : [body.input];
    const data = inputs.map((_, index) => ({ object: "embedding", index, embedding: [0.6, 0.8] }));
    const total = { prompt_tokens: usage.prompt, total_tokens: usage.prompt };
    sendJson(response, 200, { object: "list", model: SCRIPTED.embeddings, data, usage: total });
  });
  playMedia(upstream, (kind, credits) => {
    seen.add(kind);
    microCredits.push(Math.round(credits * 1e6));
  });
  return {
    baseUrl: upstream.baseUrl,
    held,
    microCredits: () => microCredits.reduce((sum, one) => sum + one, 0),
    answers: () => microCredits.length,
    seen,
    missing: () => [...missing],
    close: () => upstream.close(),
  };
}

/** Answers for images, speech and transcription. `charge` gets the credits of each answer. */
function playMedia(upstream: Upstream, charge: (kind: string, credits: number) => void): void {
  upstream.behave(SCRIPTED.images, ({ response }) => {
    charge("images", CALL_PRICE.perImage);
    sendJson(response, 200, { created: 1_700_000_000, data: [{ b64_json: MEDIUM.toString("base64") }] });
  });
  upstream.behave(SCRIPTED.speech, ({ body, response }) => {
    charge("speech", String(body.input).length * CALL_PRICE.perCharacter);
    response.writeHead(200, { "content-type": "audio/mpeg" }).end(MEDIUM);
  });
  upstream.behave(SCRIPTED.transcription, ({ response }) => {
    charge("transcription", AUDIO_SECONDS * CALL_PRICE.perSecond);
    sendJson(response, 200, { text: LAST_TEXT, usage: { type: "duration", seconds: AUDIO_SECONDS } });
  });
}

/** Counts the scripted calls that have a result. Some clients of Gemini's API leave out the ids of calls. */
function finishedCalls(results: readonly (string | undefined)[]): number {
  const named = new Set(results.filter((id) => id?.startsWith(ID_PREFIX)));
  return named.size > 0 ? named.size : results.filter((id) => id?.startsWith("call_")).length;
}

/** An image or a sound, of which nobody looks at the content. */
const MEDIUM = Buffer.from(LAST_TEXT);
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
