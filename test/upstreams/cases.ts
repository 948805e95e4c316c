import { completion, DONE, event, finish, head, STREAM_HEAD, usage, whole, word } from "../support/wire.ts";
import {
  answers,
  answersWith,
  BODY,
  dribbles,
  dribblesHeaders,
  errorInside,
  floods,
  gzipBomb,
  inChunks,
  REPORTED,
  type Script,
  sends,
  sendsAndResets,
  sendsAndWaits,
  streams,
} from "./scripts.ts";

/** Response and charge, in the words of `docs/upstream-faults.md`. */
export type Outcome = string;

/** An upstream that misbehaves, for a request with streaming and for one without. */
export interface Case {
  name: string;
  /** Address: the test's own server, with a short timeout for "silent" ones, or one that cannot be reached. */
  at?: "silent" | "silent-later" | "silent-tls" | "unused" | "no-such-name" | "no-tls" | "no-certificate";
  streamed: Outcome;
  unstreamed: Outcome;
  /** Script of the test's own server: one for both requests, or one each; a missing request is not sent. */
  script?: Script | { streamed?: Script; unstreamed?: Script };
}

export const MODES = ["streamed", "unstreamed"] as const;
export type Mode = (typeof MODES)[number];

/** The requests that a case is for. */
export function modesOf({ script }: Case): readonly Mode[] {
  return typeof script === "object" ? MODES.filter((mode) => script[mode] !== undefined) : MODES;
}

export const MEBIBYTE = 1024 * 1024;
export const JSON_TYPE = { "content-type": "application/json" };

export const refusedWith = (status: number, code: string): Outcome => `${status} \`${code}\`, nothing charged`;
const UNAVAILABLE = refusedWith(503, "upstream_unavailable");
export const FAILED = refusedWith(502, "upstream_error");
const OVERLOADED = refusedWith(503, "overloaded");
const TIMEOUT = refusedWith(504, "upstream_timeout");
/** A stream that ends in an error after so many pieces. */
export const brokenOff = (pieces: string, code = "upstream_error"): Outcome =>
  `${pieces}, then \`${code}\`, ${pieces === "nothing" ? "nothing charged" : "charged the input and what was sent"}`;
export const BROKEN = brokenOff("a piece");
const AS_REPORTED: Outcome = "the answer, charged as reported";
const AS_COUNTED: Outcome = "the answer, charged as counted";
const AS_BOUNDED: Outcome = "the answer, charged as bounded";

export const both = (outcome: Outcome) => ({ streamed: outcome, unstreamed: outcome });
const each = (streamed: Script, unstreamed: Script) => ({ script: { streamed, unstreamed } });

const UNREACHABLE: Case[] = [
  { name: "connection refused", at: "unused", ...both(UNAVAILABLE) },
  { name: "a name that does not exist", at: "no-such-name", ...both(UNAVAILABLE) },
  { name: "no TLS where TLS is expected", at: "no-tls", ...both(UNAVAILABLE) },
  { name: "a TLS handshake that fails", at: "no-certificate", ...both(UNAVAILABLE) },
  { name: "a TLS handshake that never ends", at: "silent-tls", ...both(TIMEOUT) },
];

const HEADERS: Case[] = [
  { name: "no answer at all", at: "silent", script: () => {}, ...both(TIMEOUT) },
  { name: "headers a few bytes a second", at: "silent", script: dribblesHeaders, ...both(TIMEOUT) },
  { name: "closed before headers", script: (socket) => void socket.end(), ...both(UNAVAILABLE) },
  { name: "reset before headers", script: (socket) => void socket.resetAndDestroy(), ...both(UNAVAILABLE) },
  { name: "closed inside the headers", script: sends("HTTP/1.1 200 OK\r\ncontent-ty"), ...both(UNAVAILABLE) },
  { name: "something that is not HTTP", script: sends("220 mail ready\r\n\r\n"), ...both(FAILED) },
  { name: "headers of 40 KB", script: sends(head(200, { "x-long": "x".repeat(40_000) })), ...both(FAILED) },
  {
    name: "interim answers without end",
    script: floods("", "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(100), 64 * MEBIBYTE),
    ...both(FAILED),
  },
  { name: "two lengths that differ", script: answers(200, "{}", { "Content-length": "5" }), ...both(UNAVAILABLE) },
  {
    name: "200 with HTML",
    script: answers(200, "<html>Sign in</html>", { "content-type": "text/html" }),
    ...both(FAILED),
  },
  {
    name: "a content type of its own",
    ...each(
      sends(head(200, { "content-type": "application/x-stream" }), BODY),
      answers(200, completion("a"), { "content-type": "text/plain" }),
    ),
    ...both(FAILED),
  },
  { name: "204 without content", script: sends("HTTP/1.1 204 No Content\r\n\r\n"), ...both(FAILED) },
  { name: "206 with a part", script: answers(206, completion("a")), ...both(FAILED) },
  ...[301, 302, 307, 308].map((status) => ({
    name: `redirect ${status}: never followed`,
    script: answers(status, "", { location: "http://127.0.0.1:9/v1/chat/completions" }),
    ...both(FAILED),
  })),
  { name: "a gzip bomb", ...each(gzipBomb("text/event-stream"), gzipBomb("application/json")), ...both(FAILED) },
  {
    name: "a chain of encodings",
    script: answers(200, completion("a"), { "content-encoding": "gzip, br, deflate" }),
    ...both(FAILED),
  },
];

const because = { error: { message: "Because.", type: "error" } };
const STATUSES: Case[] = [
  { name: "400", script: answers(400, because), ...both(refusedWith(400, "upstream_rejected")) },
  {
    name: "400 for the content policy",
    script: answers(400, { error: { message: "No.", code: "content_filter" } }),
    ...both(refusedWith(400, "content_filter")),
  },
  {
    name: "400 for the length of the prompt",
    script: answers(400, { error: { message: "Too long.", code: "context_length_exceeded" } }),
    ...both(refusedWith(400, "context_length_exceeded")),
  },
  ...[401, 402, 403, 404].map((status) => ({
    name: `${status}: the operator's fault`,
    script: answers(status, because),
    ...both(FAILED),
  })),
  { name: "408", script: answers(408, because), ...both(TIMEOUT) },
  { name: "413", script: answers(413, because), ...both(refusedWith(400, "upstream_rejected")) },
  { name: "429 without Retry-After", script: answers(429, because), ...both(OVERLOADED) },
  { name: "429 with Retry-After", script: answers(429, because, { "retry-after": "2" }), ...both(OVERLOADED) },
  {
    name: "429 for an account without money",
    script: answers(429, { error: { message: "Pay.", code: "insufficient_quota" } }),
    ...both(FAILED),
  },
  ...[500, 502].map((status) => ({ name: `${status}`, script: answers(status, because), ...both(FAILED) })),
  { name: "503", script: answers(503, because), ...both(OVERLOADED) },
  { name: "503 with Retry-After", script: answers(503, because, { "retry-after": "2" }), ...both(OVERLOADED) },
  { name: "504", script: answers(504, because), ...both(TIMEOUT) },
  { name: "529", script: answers(529, because), ...both(OVERLOADED) },
  { name: "500 with HTML", script: answers(500, "<html>", { "content-type": "text/html" }), ...both(FAILED) },
  {
    name: "an error whose body has no end",
    script: floods(head(500), "x".repeat(65_536), 64 * MEBIBYTE),
    ...both(FAILED),
  },
  { name: "an error cut off in its body", script: sends(whole(429, because).slice(0, -5)), ...both(OVERLOADED) },
];

const half = whole(200, completion("a")).slice(0, -5);
const BREAKS: Case[] = [
  {
    name: "reset after the headers",
    ...each(sendsAndResets(inChunks("")), sendsAndResets(head(200, { ...JSON_TYPE, "content-length": "90" }))),
    streamed: brokenOff("nothing"),
    unstreamed: FAILED,
  },
  {
    name: "reset inside the answer",
    ...each(sendsAndResets(inChunks(`${word("a")}data: {"choi`)), sendsAndResets(half)),
    streamed: BROKEN,
    unstreamed: FAILED,
  },
  {
    name: "closed inside the answer",
    ...each(sends(inChunks(`${word("a")}data: {"choi`)), sends(half)),
    streamed: BROKEN,
    unstreamed: FAILED,
  },
  {
    name: "reset after the usage, before the end mark",
    script: sendsAndResets(inChunks(BODY.replace(DONE, ""))),
    ...both(AS_REPORTED),
  },
  {
    name: "silence in the middle",
    at: "silent-later",
    ...each(sendsAndWaits(inChunks(word("a"))), sendsAndWaits(half)),
    streamed: brokenOff("a piece", "upstream_timeout"),
    unstreamed: TIMEOUT,
  },
  {
    name: "a stream without end",
    script: floods(STREAM_HEAD, word("x".repeat(12_000)), 64 * MEBIBYTE),
    streamed: brokenOff("at most 16 MiB"),
    unstreamed: FAILED,
  },
  {
    name: "an event, or an answer, of 64 MiB",
    ...each(
      floods(`${STREAM_HEAD}${word("a")}data: `, "x".repeat(65_536), 64 * MEBIBYTE),
      floods(head(200, JSON_TYPE), "x".repeat(65_536), 64 * MEBIBYTE),
    ),
    streamed: BROKEN,
    unstreamed: FAILED,
  },
];

const OTHER_LINES = (end: string) => streams(BODY.replaceAll("\n", end));
const multiLine = `data: {"choices": [{"index": 0,\ndata: "delta": {"content":\ndata: "a"}}]}\n\n`;
const WRITINGS: Case[] = [
  {
    name: "one byte a chunk, and so every split inside a character",
    ...each(
      dribbles("text/event-stream", BODY.replace('"a"', '"é😀"')),
      dribbles("application/json", JSON.stringify(completion("é😀"))),
    ),
    ...both(AS_REPORTED),
  },
  {
    name: "a million empty events",
    script: streams(word("a") + "\n".repeat(500_000) + "data:\n\n".repeat(500_000) + BODY.replace(word("a"), "")),
    ...both(AS_REPORTED),
  },
  { name: "lines that end in CR", script: OTHER_LINES("\r"), ...both(AS_REPORTED) },
  { name: "lines that end in LF", script: OTHER_LINES("\n"), ...both(AS_REPORTED) },
  { name: "lines that end in CRLF", script: OTHER_LINES("\r\n"), ...both(AS_REPORTED) },
  { name: "a byte order mark", script: streams(`\uFEFF${BODY}`), ...both(AS_REPORTED) },
  {
    name: "comments",
    script: streams(`: hello\n\n${BODY.replaceAll("\n\n", "\n\n: still here\n\n")}`),
    ...both(AS_REPORTED),
  },
  { name: "events of several lines", script: streams(BODY.replace(word("a"), multiLine)), ...both(AS_REPORTED) },
  {
    name: "invalid UTF-8",
    ...each(
      streams(Buffer.from(BODY.replace('"a"', '"\xff"'), "latin1")),
      sends(head(200, JSON_TYPE), Buffer.from(JSON.stringify(completion("\xff")), "latin1")),
    ),
    ...both("the answer, with replacement characters, charged as reported"),
  },
  {
    name: "truncated JSON",
    ...each(streams(`${word("a")}data: {"choices": [\n\n${finish()}${DONE}`), answers(200, '{"choices": [')),
    streamed: BROKEN,
    unstreamed: FAILED,
  },
  {
    name: "JSON of another shape",
    ...each(streams(`${word("a")}data: []\n\n${finish()}${DONE}`), answers(200, "[]")),
    streamed: BROKEN,
    unstreamed: FAILED,
  },
  {
    name: "JSON nested 100,000 deep",
    ...each(
      streams(
        `${word("a")}data: {"choices":${"[".repeat(50_000)}${"]".repeat(50_000)}}\n\n${finish()}${usage(REPORTED)}${DONE}`,
      ),
      answers(200, `{"choices":${"[".repeat(100_000)}${"]".repeat(100_000)}}`),
    ),
    streamed: AS_REPORTED,
    unstreamed: FAILED,
  },
  {
    name: "nothing at all",
    ...each(streams(""), answers(200, "")),
    streamed: brokenOff("nothing"),
    unstreamed: FAILED,
  },
  { name: "end mark missing", script: streams(BODY.replace(DONE, "")), ...both(AS_REPORTED) },
  { name: "end mark twice", script: streams(BODY + DONE), ...both(AS_REPORTED) },
  { name: "end mark early", script: streams(word("a") + DONE), streamed: BROKEN, unstreamed: FAILED },
  { name: "no finish reason", script: streams(word("a")), streamed: BROKEN, unstreamed: FAILED },
  {
    name: "an error inside a 200",
    ...each(streams(word("a") + errorInside), answers(200, { error: { message: "no", type: "server_error" } })),
    streamed: BROKEN,
    unstreamed: FAILED,
  },
  {
    name: "an error inside a 200, before the first word",
    script: streams(event({ error: { message: "later", type: "overloaded_error" } })),
    streamed: brokenOff("nothing", "overloaded"),
    unstreamed: OVERLOADED,
  },
];

const UNTRUE: [string, object | undefined][] = [
  ["absent", undefined],
  ["zero", { prompt_tokens: 0, completion_tokens: 0 }],
  ["negative", { prompt_tokens: -3, completion_tokens: 1 }],
  ["a fraction", { prompt_tokens: 3.5, completion_tokens: 1 }],
  ["text", { prompt_tokens: "3", completion_tokens: "1" }],
  ["2^31", { prompt_tokens: 2 ** 31, completion_tokens: 1 }],
  ["2^53 + 1", { prompt_tokens: 2 ** 53 + 2, completion_tokens: 1 }],
  ["2^63", { prompt_tokens: 2 ** 63, completion_tokens: 1 }],
  ["cached above the prompt", { ...REPORTED, prompt_tokens_details: { cached_tokens: 4 } }],
  ["reasoning above the answer", { ...REPORTED, completion_tokens_details: { reasoning_tokens: 2 } }],
];
const EXCESSIVE = new Set(["2^31", "2^53 + 1", "2^63"]);
const USAGES: Case[] = [
  ...UNTRUE.map(([what, reported]) => ({
    name: `usage: ${what}`,
    ...each(
      streams(word("a") + finish() + (reported === undefined ? "" : usage(reported)) + DONE),
      answersWith({ usage: reported }),
    ),
    ...both(EXCESSIVE.has(what) ? AS_BOUNDED : AS_COUNTED),
  })),
  {
    name: "usage: NaN, which is no JSON",
    ...each(
      streams(`${word("a")}${finish()}data: {"choices":[],"usage":{"prompt_tokens":NaN}}\n\n${DONE}`),
      answers(200, JSON.stringify(completion("a")).replace("3", "NaN")),
    ),
    streamed: AS_COUNTED,
    unstreamed: FAILED,
  },
];

export const CASES: readonly Case[] = [...UNREACHABLE, ...HEADERS, ...STATUSES, ...BREAKS, ...WRITINGS, ...USAGES];
/** Cases that do not depend on the protocol of the answers. */
export const CASES_OF_ANY_WIRE: readonly Case[] = [...UNREACHABLE, ...HEADERS, ...STATUSES];
