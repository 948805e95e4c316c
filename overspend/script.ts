/** A lie, or silence, about the tokens of an answer. */
export type UsageLie = "absent" | "null" | "zero" | "negative" | "huge" | "huge prompt" | "fraction" | "text";

/** The behaviour of the upstream towards one call. */
export type Act =
  | { kind: "answer"; usage?: UsageLie; pauseMs?: number }
  | { kind: "status"; status: number }
  /** Closes the connection before the first byte of a response. */
  | { kind: "hang up" }
  /** Answers 200 with a page of HTML. */
  | { kind: "page" }
  /** Ends an answer in its middle: by a reset, by a regular end without the rest, or by an error in place of the rest. */
  | { kind: "break"; afterTokens: number; by: "reset" | "end" | "error" };

/** The behaviour of the upstream towards one intent of a client: the last act is repeated. */
export interface Script {
  /** Length of the complete answer; also the `max_tokens` of the request. */
  tokens: number;
  acts: readonly [Act, ...Act[]];
}

/** Words that are one token each, with the space before them, in the encodings cl100k_base and o200k_base. */
const WORDS = ["one", "two", "red", "blue", "green", "house", "water", "light", "paper", "stone", "north", "south"];

/** Returns the pieces of an answer: one word and one token each. */
export function piecesOf(tokens: number): string[] {
  return Array.from({ length: tokens }, (_, index) => `${index === 0 ? "" : " "}${WORDS[index % WORDS.length]}`);
}

/** Counts the words of a text. */
export function countWords(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}

const ID = /\boverspend ([a-z0-9]+-\d+)\b/;

/** Returns the prompt that names a script to the upstream. */
export function promptOf(id: string): string {
  return `overspend ${id}`;
}

/** Returns the id of the script that a prompt names; undefined if it names none. */
export function idIn(prompt: string): string | undefined {
  return ID.exec(prompt)?.[1];
}

/** Writes the `usage` of a response as JSON, true or not; undefined if it is absent. */
export function usageText(lie: UsageLie | undefined, promptTokens: number, tokens: number): string | undefined {
  const usage = (prompt: number | string, completion: number | string, total: number | string) =>
    `{"prompt_tokens":${prompt},"completion_tokens":${completion},"total_tokens":${total}}`;
  switch (lie) {
    case undefined:
      return usage(promptTokens, tokens, promptTokens + tokens);
    case "absent":
      return undefined;
    case "null":
      return "null";
    case "zero":
      return usage(0, 0, 0);
    case "negative":
      return usage(promptTokens, -tokens, promptTokens - tokens);
    case "huge":
      return usage(promptTokens, 2_147_483_648, promptTokens + 2_147_483_648);
    case "huge prompt":
      // 2^53 + 1, which no floating-point number is equal to.
      return usage("9007199254740993", tokens, "9007199254740993");
    case "fraction":
      return usage(promptTokens, `${tokens}.5`, `${promptTokens + tokens}.5`);
    case "text":
      return usage(promptTokens, '"many"', '"many"');
  }
}
