import type { RequestMessage } from "../../api/chat/request.ts";

/** Splits a text into sandbox tokens, countable by eye: a word with the white space after it. */
export function* textTokens(text: string): Generator<string, undefined> {
  const word = /\S+\s*/g;
  let start = 0;
  for (let found = word.exec(text); found !== null; found = word.exec(text)) {
    yield text.slice(start, word.lastIndex);
    start = word.lastIndex;
  }
}

/** Counts the tokens of a text. */
export function countTokens(text: string): number {
  const word = /\S+/g;
  let count = 0;
  while (word.test(text)) count += 1;
  return count;
}

/** Returns the text of the last user message, its text parts joined by line feeds; empty if there is none. */
export function lastUserText(messages: readonly RequestMessage[]): string {
  return textOf(messages.findLast((message) => message.role === "user")?.content);
}

/** Counts the tokens of the text of all messages. */
export function countPromptTokens(messages: readonly RequestMessage[]): number {
  return messages.reduce((count, message) => count + countTokens(textOf(message.content)), 0);
}

function textOf(content: RequestMessage["content"]): string {
  if (content === undefined) return "";
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? part.text : "")).join("\n");
}

const SENTENCES: readonly string[] = [
  "The toll keeper counted every coin twice before the gate was opened.",
  "A small boat waited below the bridge, and nobody could say for whom.",
  "Rain had washed the numbers from the board, so the price was asked aloud.",
  "She paid for one crossing and kept the receipt in her coat.",
  "On the far side the road divided, and both ways were marked as the shorter one.",
  "The ledger lay open on the table, its last line still wet.",
  "Someone had written a name in the margin and then thought better of it.",
  "By evening the queue reached back to the old mill.",
  "The lamp above the gate burned low, but it burned.",
  "He remembered the price of every journey and the reason for none.",
  "In the morning the river was quiet, as if nothing had been owed.",
];
/** The tokens of each sentence, made once: an answer that waits keeps those that it has still to send. */
const SENTENCE_TOKENS = SENTENCES.map((sentence) => [...textTokens(`${sentence} `)]);

/** Generates the tokens of an endless story, the same ones for the same seed. */
export function* story(seed: number): Generator<string, undefined> {
  for (let place = Math.abs(Math.trunc(seed)) % SENTENCES.length; ; place = (place + 1) % SENTENCES.length) {
    yield* SENTENCE_TOKENS[place] ?? [];
  }
}

/** Finds a text in linear time (Knuth, Morris and Pratt), or returns -1: `indexOf` takes seconds for near matches. */
export function indexOfFirst(wanted: string, text: string): number {
  if (wanted === "") return 0;
  if (wanted.length > text.length) return -1;
  const borders = bordersOf(wanted);
  let matched = 0;
  for (let at = 0; at < text.length; at += 1) {
    while (matched > 0 && wanted.charCodeAt(matched) !== text.charCodeAt(at)) matched = borders[matched - 1] ?? 0;
    if (wanted.charCodeAt(matched) === text.charCodeAt(at)) matched += 1;
    if (matched === wanted.length) return at + 1 - matched;
  }
  return -1;
}

/** Returns, for each prefix of a text, the length of its longest proper prefix that is also its suffix. */
function bordersOf(text: string): Uint32Array {
  const borders = new Uint32Array(text.length);
  let length = 0;
  for (let at = 1; at < text.length; at += 1) {
    while (length > 0 && text.charCodeAt(length) !== text.charCodeAt(at)) length = borders[length - 1] ?? 0;
    if (text.charCodeAt(length) === text.charCodeAt(at)) length += 1;
    borders[at] = length;
  }
  return borders;
}
