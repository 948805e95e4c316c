import type { FinishReason } from "../../api/chat/completion.ts";
import { statusFailure } from "../errors.ts";
import { UpstreamError } from "../provider.ts";

/** The behaviour that a message to the model `fault` demands. */
export interface Fault {
  /** Wait before the answer begins. */
  delayMs: number;
  /** Failure that replaces the answer. */
  failure: UpstreamError | undefined;
  /** Length of the answer, if the message states it. */
  tokens: number | undefined;
  /** Events in the middle of the answer, ordered by the number of tokens before them. */
  events: FaultEvent[];
  isWithoutUsage: boolean;
  isRefusal: boolean;
  /** Finish reason that replaces the answer's own. */
  finishReason: FinishReason | undefined;
}

export type FaultEvent = { afterTokens: number } & ({ failure: UpstreamError } | { silenceMs: number });

interface Phrase {
  /** The phrase as error messages show it. */
  example: string;
  pattern: RegExp;
  apply(fault: Fault, words: Readonly<Record<string, string | undefined>>): void;
}

const AFTER = "(?: after (?<after>\\d{1,4}) tokens?)";
const TIME = "(?<time>\\d{1,6}(?:\\.\\d{1,3})?)(?<unit>ms|s)";

const instead = (fault: Fault, failure: UpstreamError) => {
  fault.failure ??= failure;
};
const phrase = (example: string, pattern: string, apply: Phrase["apply"]): Phrase => ({
  example,
  pattern: new RegExp(`^${pattern}$`),
  apply,
});

/**
 * The language of `fault`: phrases in any order, separated by commas, semicolons, line feeds, "and" or "then". Times are in
 * ms or s. Without a number of tokens, a fault occurs after the first token.
 */
const PHRASES: readonly Phrase[] = [
  phrase(
    "status 429 retry-after 3",
    "status (?<status>[45]\\d\\d)(?: retry-after (?<seconds>\\d{1,6}))?",
    (fault, words) => instead(fault, failureOfStatus(Number(words.status), words.seconds)),
  ),
  phrase("delay 500ms", `delay ${TIME}`, (fault, words) => {
    fault.delayMs += milliseconds(words);
  }),
  phrase("timeout", "timeout", (fault) => instead(fault, new UpstreamError("timeout", "The sandbox timed out"))),
  phrase("unavailable", "unavailable", (fault) =>
    instead(fault, new UpstreamError("unavailable", "The sandbox cannot be reached")),
  ),
  phrase("context_length", "context_length", (fault) =>
    instead(fault, refusal("context_length", "the prompt is too long")),
  ),
  phrase("content_filter prompt", "content_filter prompt", (fault) =>
    instead(fault, refusal("content_filter", "the prompt violates its policy")),
  ),
  phrase("reset after 5 tokens", `reset${AFTER}?`, (fault, words) =>
    breakOff(fault, words, new UpstreamError("failed", "The sandbox reset the connection")),
  ),
  phrase("malformed event after 3 tokens", `malformed event${AFTER}?`, (fault, words) =>
    breakOff(fault, words, new UpstreamError("malformed", "The sandbox sent a malformed event")),
  ),
  phrase("error event after 3 tokens", `error event${AFTER}?`, (fault, words) =>
    breakOff(fault, words, new UpstreamError("failed", "The sandbox sent an error event")),
  ),
  phrase("silence after 2 tokens 30s", `silence${AFTER}? ${TIME}`, (fault, words) => {
    fault.events.push({ afterTokens: afterTokens(words), silenceMs: milliseconds(words) });
  }),
  phrase("20 tokens", "(?<tokens>\\d{1,4}) tokens?", (fault, words) => {
    fault.tokens = Number(words.tokens);
  }),
  phrase("no usage", "no usage", (fault) => {
    fault.isWithoutUsage = true;
  }),
  phrase("refusal", "refusal", (fault) => {
    fault.isRefusal = true;
  }),
  phrase("length", "length", (fault) => {
    fault.finishReason = "length";
  }),
  phrase("content_filter", "content_filter", (fault) => {
    fault.finishReason = "content_filter";
  }),
];

const MESSAGE_LENGTH_MAX = 2_000;
const EXAMPLES = PHRASES.map(({ example }) => `'${example}'`).join(", ");

/** Reads the faults that a message names. Throws UpstreamError `rejected`, which lists the phrases, if it has another phrase. */
export function readFault(message: string): Fault {
  if (message.length > MESSAGE_LENGTH_MAX) throw notUnderstood(`more than ${MESSAGE_LENGTH_MAX} characters`);
  const fault: Fault = {
    delayMs: 0,
    failure: undefined,
    tokens: undefined,
    events: [],
    isWithoutUsage: false,
    isRefusal: false,
    finishReason: undefined,
  };
  const parts = message.toLowerCase().split(/[,;\n]|\b(?:and|then)\b/);
  const phrases = parts
    .map((part) => part.trim().replace(/\s+/g, " ").replace(/\.$/, ""))
    .filter((part) => part !== "");
  if (phrases.length === 0) throw notUnderstood("an empty message");
  for (const words of phrases) {
    const understood = PHRASES.find(({ pattern }) => pattern.test(words));
    if (understood === undefined) throw notUnderstood(`'${words.slice(0, 60)}'`);
    understood.apply(fault, understood.pattern.exec(words)?.groups ?? {});
  }
  fault.events = fault.events.toSorted((one, other) => one.afterTokens - other.afterTokens);
  return fault;
}

function notUnderstood(what: string): UpstreamError {
  const reason = `The sandbox does not understand ${what}. It understands, also together: ${EXAMPLES}.`;
  return new UpstreamError("rejected", reason, { publicReason: reason });
}

function refusal(failure: "context_length" | "content_filter", why: string): UpstreamError {
  const reason = `The sandbox simulates that ${why}.`;
  return new UpstreamError(failure, reason, { publicReason: reason });
}

function failureOfStatus(status: number, seconds: string | undefined): UpstreamError {
  const body = JSON.stringify({ error: { message: `The sandbox simulates the status ${status}.` } });
  return statusFailure(status, seconds === undefined ? {} : { "retry-after": seconds }, body, (text) => text);
}

function breakOff(fault: Fault, words: Readonly<Record<string, string | undefined>>, failure: UpstreamError): void {
  fault.events.push({ afterTokens: afterTokens(words), failure });
}

function afterTokens({ after }: Readonly<Record<string, string | undefined>>): number {
  return Number(after ?? 1);
}

function milliseconds({ time, unit }: Readonly<Record<string, string | undefined>>): number {
  return Math.round(Number(time) * (unit === "s" ? 1000 : 1));
}
