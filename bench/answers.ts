import type { Contender } from "./contenders.ts";
import { ANSWER_TEXT, requestBody } from "./payload.ts";

interface Choice {
  message?: { content?: string };
  delta?: { content?: string | null };
}

/**
 * Sends one request and reads the answer as a client would. Returns the bytes of a complete answer; throws, with the response,
 * if it differs from the upstream's text.
 */
export async function checkAnswer(contender: Contender, streamed: boolean): Promise<number> {
  const answer = await fetch(contender.url(streamed), {
    method: "POST",
    headers: contender.headers(streamed),
    body: requestBody(streamed),
    signal: AbortSignal.timeout(10_000),
  });
  const text = await answer.text();
  const shown = `status ${answer.status}: ${JSON.stringify(text.slice(0, 300))}`;
  if (answer.status !== 200) throw new Error(shown);
  const content = streamed ? streamedContent(text) : unstreamedContent(text);
  if (content !== ANSWER_TEXT) throw new Error(`another text than the upstream's, ${shown}`);
  return Buffer.byteLength(text);
}

function unstreamedContent(text: string): string | undefined {
  const { choices } = JSON.parse(text) as { choices?: Choice[] };
  return choices?.[0]?.message?.content;
}

/** The pieces put together; undefined where the stream does not end with `[DONE]`. */
function streamedContent(text: string): string | undefined {
  const events = text.split("\n\n").flatMap((event) => (event.startsWith("data:") ? [event.slice(5).trim()] : []));
  if (events.pop() !== "[DONE]") return undefined;
  const pieces = events.map((event) => (JSON.parse(event) as { choices?: Choice[] }).choices?.[0]?.delta?.content);
  return pieces.map((piece) => piece ?? "").join("");
}
