import { EventSourceParserStream } from "eventsource-parser/stream";
import type { ChatCompletionChunk, CompletionUsage } from "../../../../src/api/completion.ts";
import { ApiFailure, failureOf } from "../../api/client.ts";
import { apiBaseUrl } from "../../base-path.ts";
import type { CallBody } from "../../snippets/snippets.ts";
import type { Figures } from "./conversation.ts";

interface Asked {
  body: CallBody;
  token: string;
  signal: AbortSignal;
  onPiece: (text: string) => void;
}

/** Asks for a streamed answer as any client of `/v1` does, and tells its pieces as they come. */
export async function complete({ body, token, signal, onPiece }: Asked): Promise<Figures> {
  const startedAt = performance.now();
  const answer = await fetch(`${apiBaseUrl()}/chat/completions`, {
    method: "POST",
    // The token alone speaks for the one who asks: /v1 takes no cookie.
    credentials: "omit",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!answer.ok || answer.body === null) throw await failureOf(answer);
  let firstMs: number | null = null;
  let usage: CompletionUsage | null = null;
  let finishReason: string | null = null;
  let model = body.model;
  const events = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  for await (const { data } of iterate(events)) {
    if (data === "[DONE]") break;
    const chunk = readChunk(data);
    model = chunk.model;
    usage = chunk.usage ?? usage;
    const [choice] = chunk.choices;
    finishReason = choice?.finish_reason ?? finishReason;
    const text = choice?.delta.content ?? "";
    if (text === "") continue;
    firstMs ??= performance.now() - startedAt;
    onPiece(text);
  }
  return { model, firstMs, durationMs: performance.now() - startedAt, usage, finishReason };
}

/** Not every browser lets a stream be iterated. */
async function* iterate<T>(stream: ReadableStream<T>): AsyncGenerator<T> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** A piece of the answer; a failure after the first one comes as an event of its own. */
function readChunk(data: string): ChatCompletionChunk {
  const event = JSON.parse(data) as ChatCompletionChunk | { error: { message: string; code: string | null } };
  if (!("error" in event)) return event;
  const { message, code } = event.error;
  throw new ApiFailure(502, message, { code: code ?? undefined });
}
