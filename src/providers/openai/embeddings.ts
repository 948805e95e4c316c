import { type EmbeddingVector, NumbersText } from "../../api/embeddings/vector.ts";
import { detailsOf, isObject, parseJson, textOf } from "../../api/json.ts";
import { answerObject } from "../errors.ts";
import { type TaskCall, UpstreamError } from "../provider.ts";
import type { Scrub } from "../scrub.ts";
import type { RequestFormat } from "./request.ts";

/** Longest answer: 2,048 vectors of 1,536 numbers as text. */
export const EMBEDDINGS_BYTES_MAX = 64 * 1024 * 1024;
/** Longer answers are read in turn, this much at a time [256 KiB: 1 ms, 15 MB: 90 ms]. */
const LONG_CHARACTERS = 256 * 1024;

/** Writes the body of a request of embeddings. A single input is sent alone, because not every API takes an array of token arrays. */
export function toEmbeddingBody(
  { model, request: { inputs, dimensions, encoding, user } }: TaskCall<"embedding">,
  { encodesEmbeddings }: Pick<RequestFormat, "encodesEmbeddings">,
): string {
  const format = encodesEmbeddings ? encoding : "float";
  const input = inputs.length === 1 ? inputs[0] : inputs;
  return JSON.stringify({ model, input, encoding_format: format, dimensions, user });
}

/** Reads an answer. Items are placed by their `index`, or in their order where they have none. Rejects with UpstreamError. */
export async function readEmbeddings(
  text: string,
  { request: { inputs, encoding }, inTurn }: Pick<TaskCall<"embedding">, "request" | "inTurn">,
  scrub: Scrub,
) {
  const run: typeof inTurn = text.length > LONG_CHARACTERS ? inTurn : async (work) => work();
  const taken = encoding === "float" ? await takeVectors(text, run) : undefined;
  const answer = answerObject(taken?.answer ?? (await run(() => parseJson(text))), scrub);
  if (!Array.isArray(answer.data) || answer.data.length !== inputs.length) {
    throw new UpstreamError("malformed", "The upstream's answer does not have one embedding for each input");
  }
  // As the upstream sent them, or undefined where it left one out: the caller checks each.
  const vectors: unknown[] = inputs.map(() => undefined);
  for (const [position, item] of answer.data.entries()) {
    if (!isObject(item)) continue;
    const index = typeof item.index === "number" ? item.index : position;
    if (index in vectors) vectors[index] = taken?.vectors[position] ?? item.embedding;
  }
  const { prompt_tokens, total_tokens, cost } = detailsOf(answer.usage);
  const usage = { prompt_tokens: prompt_tokens ?? total_tokens, completion_tokens: 0, cost };
  return {
    vectors: vectors as EmbeddingVector[],
    usage: isObject(answer.usage) ? usage : undefined,
    responseId: textOf(answer.id),
    finish_reason: "stop" as const,
  };
}

const SPACE = "[ \\n\\r\\t]{0,16}";
/** A number in JSON, with few enough digits to be finite. */
const NUMBER = "-?(?:0|[1-9]\\d{0,15})(?:\\.\\d{1,32})?(?:[eE][-+]?\\d{1,2})?";
const NUMBERS = `\\[${SPACE}(?:${NUMBER},${SPACE}){0,8191}${NUMBER}${SPACE}\\]`;
/** All repetitions have a bound, because the stack of a regular expression has one too: 64 MiB in V8. */
const FIELD = new RegExp(`"embedding"${SPACE}:${SPACE}(${NUMBERS})`, "g");

/**
 * Takes the vectors out of an answer as text and parses only the rest, because parsing numbers and writing them again
 * takes a third of the time of a request. Undefined if not every item has one array of numbers as most upstreams write
 * them, or if there are others; the whole answer is then parsed.
 *
 * A text without escapes cannot contain the character NUL, nor the name of a field in a string. So only a vector that was
 * taken out has become a text that begins with NUL.
 */
async function takeVectors(text: string, inTurn: TaskCall<"embedding">["inTurn"]) {
  if (text.includes("\\")) return undefined;
  const vectors: NumbersText[] = [];
  const rest: string[] = [];
  let end = 0;
  const takeSome = () => {
    const until = end + LONG_CHARACTERS;
    while (end < until) {
      FIELD.lastIndex = end;
      const found = FIELD.exec(text);
      rest.push(text.slice(end, found?.index));
      if (found === null) return false;
      rest.push(`"embedding":"\\u0000${vectors.length}"`);
      vectors.push(new NumbersText(found[1] as string));
      end = FIELD.lastIndex;
    }
    return true;
  };
  while (await inTurn(takeSome));
  const answer = parseJson(rest.join(""));
  if (!isObject(answer) || !Array.isArray(answer.data) || answer.data.length !== vectors.length) return undefined;
  return answer.data.every((item, place) => isObject(item) && item.embedding === `\0${place}`)
    ? { answer, vectors }
    : undefined;
}
