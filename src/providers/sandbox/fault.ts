import type { FinishReason } from "../../api/chat/completion.ts";
import { statusFailure } from "../errors.ts";
import { UpstreamError, type UpstreamFailure } from "../provider.ts";

/** The behaviour that a message to the model `fault` demands. */
export interface Fault {
  delayMs: number;
  /** Failure that replaces the answer. */
  failure: UpstreamError | undefined;
  /** Events in the middle of the answer, ordered by the number of tokens before them. */
  events: FaultEvent[];
  tokens?: number;
  isWithoutUsage?: boolean;
  isRefusal?: boolean;
  /** Finish reason that replaces the answer's own. */
  finishReason?: FinishReason;
}

export type FaultEvent = { afterTokens: number } & ({ failure: UpstreamError } | { silenceMs: number });

type Words = Readonly<Record<string, string | undefined>>;

const AFTER = "(?: after (?<after>\\d{1,4}) tokens?)?";
const TIME = "(?<time>\\d{1,6}(?:\\.\\d{1,3})?)(?<unit>ms|s)";

/** Makes a phrase, which error messages show as `example`. */
function phrase(example: string, faultOf: (words: Words) => Partial<Fault>, pattern = example) {
  return { example, pattern: new RegExp(`^${pattern}$`), faultOf };
}

function instead(example: string, failure: (words: Words) => UpstreamError, pattern = example) {
  return phrase(example, (words) => ({ failure: failure(words) }), pattern);
}

function breaksOff(what: string, tokens: number, failure: UpstreamFailure, message: string) {
  const eventOf = (words: Words) => ({ afterTokens: afterTokens(words), failure: new UpstreamError(failure, message) });
  return phrase(`${what} after ${tokens} tokens`, (words) => ({ events: [eventOf(words)] }), `${what}${AFTER}`);
}

/** The phrases, in any order. Times are in ms or s; without a number of tokens, a fault occurs after the first. */
const PHRASES = [
  instead(
    "status 429 retry-after 3",
    (words) => failureOfStatus(Number(words.status), words.seconds),
    "status (?<status>[45]\\d\\d)(?: retry-after (?<seconds>\\d{1,6}))?",
  ),
  phrase("delay 500ms", (words) => ({ delayMs: milliseconds(words) }), `delay ${TIME}`),
  instead("timeout", () => new UpstreamError("timeout", "The sandbox timed out")),
  instead("unavailable", () => new UpstreamError("unavailable", "The sandbox cannot be reached")),
  instead("context_length", () => refusal("context_length", "the prompt is too long")),
  instead("content_filter prompt", () => refusal("content_filter", "the prompt violates its policy")),
  breaksOff("reset", 5, "failed", "The sandbox reset the connection"),
  breaksOff("malformed event", 3, "malformed", "The sandbox sent a malformed event"),
  breaksOff("error event", 3, "failed", "The sandbox sent an error event"),
  phrase(
    "silence after 2 tokens 30s",
    (words) => ({ events: [{ afterTokens: afterTokens(words), silenceMs: milliseconds(words) }] }),
    `silence${AFTER} ${TIME}`,
  ),
  phrase("20 tokens", ({ tokens }) => ({ tokens: Number(tokens) }), "(?<tokens>\\d{1,4}) tokens?"),
  phrase("no usage", () => ({ isWithoutUsage: true })),
  phrase("refusal", () => ({ isRefusal: true })),
  phrase("length", () => ({ finishReason: "length" })),
  phrase("content_filter", () => ({ finishReason: "content_filter" })),
];

const MESSAGE_LENGTH_MAX = 2_000;
const EXAMPLES = PHRASES.map(({ example }) => `'${example}'`).join(", ");

/** Reads the faults that a message names. Throws UpstreamError `rejected`, which lists the phrases, if it has another phrase. */
export function readFault(message: string): Fault {
  if (message.length > MESSAGE_LENGTH_MAX) throw notUnderstood(`more than ${MESSAGE_LENGTH_MAX} characters`);
  const parts = message.toLowerCase().split(/[,;\n]|\b(?:and|then)\b/);
  const phrases = parts
    .map((part) => part.trim().replace(/\s+/g, " ").replace(/\.$/, ""))
    .filter((part) => part !== "");
  if (phrases.length === 0) throw notUnderstood("an empty message");
  const faults = phrases.map((words) => {
    const understood = PHRASES.find(({ pattern }) => pattern.test(words));
    if (understood === undefined) throw notUnderstood(`'${words.slice(0, 60)}'`);
    return understood.faultOf(understood.pattern.exec(words)?.groups ?? {});
  });
  const events = faults.flatMap((fault) => fault.events ?? []);
  return {
    ...Object.assign({}, ...faults),
    delayMs: faults.reduce((sum, { delayMs = 0 }) => sum + delayMs, 0),
    failure: faults.find(({ failure }) => failure !== undefined)?.failure,
    events: events.toSorted((one, other) => one.afterTokens - other.afterTokens),
  };
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

function afterTokens({ after }: Words): number {
  return Number(after ?? 1);
}

function milliseconds({ time, unit }: Words): number {
  return Math.round(Number(time) * (unit === "s" ? 1000 : 1));
}
