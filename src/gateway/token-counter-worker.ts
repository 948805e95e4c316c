import { parentPort } from "node:worker_threads";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import type { CountReply, CountRequest } from "./token-counter.ts";

/**
 * Characters that are tokenized at once. The time grows with the square of a run without a word boundary
 * [65,536 times one letter: 2.4 s at once, 2 ms in windows].
 */
const WINDOW_CHARACTERS = 512;

/** Counts special tokens in a text as text: only the provider's template can write them. */
const AS_TEXT = { disallowedSpecial: new Set<string>() };

parentPort?.on("message", ({ id, groups }: CountRequest) => {
  const counts = groups.map((texts) => texts.reduce((sum, text) => sum + countText(text), 0));
  parentPort?.postMessage({ id, counts } satisfies CountReply);
});

function countText(text: string): number {
  let tokens = 0;
  for (let start = 0; start < text.length; ) {
    const end = endOfWindow(text, start);
    tokens += countTokens(text.slice(start, end), AS_TEXT);
    start = end;
  }
  return tokens;
}

/** Returns the end of a window: before a space in its second half, if any, and never inside a surrogate pair. */
function endOfWindow(text: string, start: number): number {
  const end = start + WINDOW_CHARACTERS;
  if (end >= text.length) return text.length;
  const space = text.lastIndexOf(" ", end);
  if (space > start + WINDOW_CHARACTERS / 2) return space;
  return isLowSurrogate(text.charCodeAt(end)) ? end - 1 : end;
}

function isLowSurrogate(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff;
}
