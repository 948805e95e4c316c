import type { Contender } from "./contenders.ts";
import {
  ANSWER_TEXT,
  EMBEDDING_DIMENSIONS,
  type EmbeddingWire,
  isEmbeddings,
  requestBody,
  type Wire,
} from "./payload.ts";

interface Choice {
  message?: { content?: string };
  delta?: { content?: string | null };
}

/** The fields of a document or of an event, on any wire, that contain text. */
interface Said {
  type?: string;
  choices?: Choice[];
  /** Responses, not streamed. */
  output?: { content?: { text?: string }[] }[];
  /** Messages, not streamed. */
  content?: { text?: string }[];
  /** Events of both. */
  delta?: string | { text?: string };
}

/**
 * Sends one request and reads the answer as a client would. Returns the bytes of a complete answer; throws, with the response,
 * if it differs from the upstream's text.
 */
export async function checkAnswer(contender: Contender, streamed: boolean): Promise<number> {
  const answer = await fetch(contender.url(streamed), {
    method: "POST",
    headers: contender.headers(streamed),
    body: requestBody(contender.wire, streamed),
    signal: AbortSignal.timeout(10_000),
  });
  const text = await answer.text();
  const shown = `status ${answer.status}: ${JSON.stringify(text.slice(0, 300))}`;
  if (answer.status !== 200) throw new Error(shown);
  const { wire } = contender;
  if (isEmbeddings(wire)) {
    if (dimensionsIn(text) !== EMBEDDING_DIMENSIONS) throw new Error(`another vector, ${shown}`);
    return Buffer.byteLength(text);
  }
  const content = streamed ? streamedContent(wire, text) : unstreamedContent(text);
  if (content !== ANSWER_TEXT) throw new Error(`another text than the upstream's, ${shown}`);
  return Buffer.byteLength(text);
}

/** Returns the length of the vector in an answer. */
function dimensionsIn(text: string): number | undefined {
  const { data } = JSON.parse(text) as { data: { embedding: number[] | string }[] };
  const vector = data[0]?.embedding;
  return typeof vector === "string" ? Buffer.from(vector, "base64").length / 4 : vector?.length;
}

function unstreamedContent(text: string): string | undefined {
  const { choices, output, content } = JSON.parse(text) as Said;
  return choices?.[0]?.message?.content ?? output?.[0]?.content?.[0]?.text ?? content?.[0]?.text;
}

/** The last event of a stream on each wire. */
const LAST: Record<Exclude<Wire, EmbeddingWire>, string> = {
  chat: "[DONE]",
  responses: "response.completed",
  messages: "message_stop",
};

/** The pieces put together; undefined where the stream does not end with its last event. */
function streamedContent(wire: keyof typeof LAST, text: string): string | undefined {
  const lines = text.split("\n").flatMap((line) => (line.startsWith("data:") ? [line.slice(5).trim()] : []));
  const last = lines.pop() ?? "";
  if (!last.includes(LAST[wire])) return undefined;
  return lines.map((line) => pieceOf(JSON.parse(line) as Said)).join("");
}

function pieceOf({ type, choices, delta }: Said): string {
  if (choices !== undefined) return choices[0]?.delta?.content ?? "";
  if (type === "response.output_text.delta") return typeof delta === "string" ? delta : "";
  return type === "content_block_delta" && typeof delta === "object" ? (delta.text ?? "") : "";
}
