import { head } from "../support/wire.ts";
import type { WireFixture } from "../wires/fixture.ts";
import { FIXTURES } from "../wires/fixtures.ts";
import { frame } from "../wires/scripted-server.ts";
import {
  BROKEN,
  both,
  brokenOff,
  CASES,
  CASES_OF_ANY_WIRE,
  type Case,
  FAILED,
  JSON_TYPE,
  MEBIBYTE,
  type Outcome,
  refusedWith,
} from "./cases.ts";
import { dribbles, floods, type Script, sends, sendsAndResets, sendsAndWaits } from "./scripts.ts";
import { joined, Words } from "./words.ts";

/** The kind whose wire the cases are written in. */
export const OWN_KIND = "openai-compatible";

/** A misbehaviour in a wire's own words, in each mode that has one; or why the wire has none. */
type Made = { streamed?: Script; unstreamed?: Script } | string;
type Make = (words: Words, fixture: WireFixture) => Made;

const UNFINISHED = head(200, { ...JSON_TYPE, "content-length": "100000" });
const json = (text: string | Buffer): Script => sends(head(200, JSON_TYPE), text);
/** Makes cases of a protocol whose streams are text. */
const ofText =
  (make: (words: Words) => Script): Make =>
  (words) =>
    words.isFramed ? "frames are no text" : { streamed: make(words) };
const ofFrames =
  (make: (words: Words) => (Buffer | string)[]): Make =>
  (words) =>
    words.isFramed ? { streamed: words.streams(...make(words)) } : "";
const ofMarked =
  (make: (words: Words, end: string) => Script): Make =>
  (words) =>
    words.end === undefined ? "no end mark" : { streamed: make(words, words.end) };
/** Changes every event and the whole answer. */
const changed =
  (change: (json: string) => string): Make =>
  (words) => ({
    streamed: words.streams(words.changed(change)),
    unstreamed: json(Buffer.from(change(Buffer.from(words.whole).toString("latin1")), "latin1")),
  });
const says = (what: string) => (text: string) => text.replaceAll("Hello ", Buffer.from(what).toString("latin1"));

const BREAKS: Record<string, Make> = {
  "reset after the headers": ({ head }) => ({
    streamed: sendsAndResets(head),
    unstreamed: sendsAndResets(UNFINISHED),
  }),
  "reset inside the answer": ({ head, begin, first, rest, whole }) => ({
    streamed: sendsAndResets(joined(head, begin, first, rest.subarray(0, 20))),
    unstreamed: sendsAndResets(UNFINISHED + whole.slice(0, -5)),
  }),
  "closed inside the answer": (words) => ({
    streamed: words.streams(words.begin, words.first, words.rest.subarray(0, 20)),
    unstreamed: sends(UNFINISHED, words.whole.slice(0, -5)),
  }),
  "reset after the usage, before the end mark": ({ type, begin, first, rest }) => ({
    streamed: sendsAndResets(
      joined(head(200, { "content-type": type, "content-length": "100000" }), begin, first, rest),
    ),
  }),
  "silence in the middle": ({ head, begin, first, whole }) => ({
    streamed: sendsAndWaits(joined(head, begin, first)),
    unstreamed: sendsAndWaits(UNFINISHED + whole.slice(0, -5)),
  }),
  "a stream without end": (words) => {
    const again = words.changedFirst(says("x".repeat(12_000)));
    return { streamed: floods(joined(words.head, words.begin), again, 64 * MEBIBYTE) };
  },
  "an event, or an answer, of 64 MiB": ({ isFramed, head: before, begin, first }) => {
    const opening = isFramed ? Buffer.from([4, 0, 0, 0]) : "data: ";
    return {
      streamed: floods(joined(before, begin, first, opening), "x".repeat(65_536), 64 * MEBIBYTE),
      unstreamed: floods(head(200, JSON_TYPE), "x".repeat(65_536), 64 * MEBIBYTE),
    };
  },
};

const EMPTY_EVENTS = "\n".repeat(500_000) + "data:\n\n".repeat(500_000);
const EMPTY_FRAMES = Buffer.alloc(500_000 * 16, frame(Buffer.alloc(0), Buffer.alloc(0)));
const onSeveralLines = (events: string) =>
  events.replaceAll(/data: (\{.*\})/g, (_event, data) =>
    JSON.stringify(JSON.parse(data), null, 1).replaceAll(/^/gm, "data: "),
  );
const nested = `"nested":${"[".repeat(50_000)}${"]".repeat(50_000)}`;
const WRITINGS: Record<string, Make> = {
  "one byte a chunk, and so every split inside a character": (words) => ({
    streamed: dribbles(words.type, words.changed(says("é😀"))),
    unstreamed: dribbles("application/json", words.whole.replace("Hello ", "é😀")),
  }),
  "a million empty events": (words) => {
    const nothing = words.isFramed ? EMPTY_FRAMES : EMPTY_EVENTS;
    return { streamed: words.streams(words.begin, words.first, nothing, words.rest, words.end ?? "") };
  },
  "lines that end in CR": ofText((words) => words.streams(words.body.toString().replaceAll("\n", "\r"))),
  "lines that end in LF": ofText((words) => words.streams(words.body)),
  "lines that end in CRLF": ofText((words) => words.streams(words.body.toString().replaceAll("\n", "\r\n"))),
  "a byte order mark": ofText((words) => words.streams("\uFEFF", words.body)),
  comments: ofText((words) => words.streams(": hello\n\n", words.body.toString().replaceAll("\n\n", "\n\n: here\n\n"))),
  "events of several lines": ofText((words) => words.streams(onSeveralLines(words.body.toString()))),
  "invalid UTF-8": changed((text) => text.replaceAll("Hello ", "\xff")),
  "truncated JSON": (words) => ({
    streamed: words.streams(
      words.begin,
      words.first,
      words.changedFirst((text) => text.slice(0, -5)),
      words.rest,
    ),
    unstreamed: json(words.whole.slice(0, -5)),
  }),
  "JSON of another shape": (words) => ({
    streamed: words.streams(
      words.begin,
      words.first,
      words.changedFirst(() => "[]"),
      words.rest,
    ),
    unstreamed: json("[]"),
  }),
  "JSON nested 100,000 deep": (words) => ({
    streamed: words.streams(
      words.begin,
      words.changedFirst((text) => `${text.slice(0, -1)},${nested}}`),
      words.rest,
    ),
    unstreamed: json(nested.replace('"nested":', "")),
  }),
  "nothing at all": (words) => ({ streamed: words.streams(""), unstreamed: json("") }),
  "a broken checksum": ofFrames(({ begin, first, rest }) => {
    const broken = Buffer.from(first);
    broken[first.length - 1] = ~(first.at(-1) ?? 0);
    return [begin, first, broken, rest];
  }),
  "a broken checksum of the lengths": ofFrames(({ begin, first, rest }) => {
    const broken = Buffer.from(first);
    broken[8] = ~(first[8] ?? 0);
    return [begin, first, broken, rest];
  }),
  "a frame without a length": ofFrames(({ begin, first, rest }) => [begin, first, Buffer.alloc(16), rest]),
};

const ENDS: Record<string, Make> = {
  "end mark missing": ofMarked((words) => words.streams(words.begin, words.first, words.rest)),
  "end mark twice": ofMarked((words, end) => words.streams(words.body, end)),
  "end mark early": ofMarked((words, end) => words.streams(words.begin, words.first, end)),
  "no finish reason": (words) => ({ streamed: words.streams(words.begin, words.first) }),
  "an error inside a 200": (words, { errorEvent }) => {
    if (errorEvent === undefined) return "no error of a stream";
    const streamed = words.streams(words.begin, words.first, words.events([errorEvent.event]));
    return { streamed, unstreamed: json(JSON.stringify(errorEvent.event)) };
  },
  "an error inside a 200, before the first word": (words, { errorEvent }) =>
    errorEvent === undefined ? "no error of a stream" : { streamed: words.streams(words.events([errorEvent.event])) },
};

/** Makes something else of every counter of an answer's usage. */
function counters(change: (count: number, name: string) => unknown): Make {
  const within = (value: unknown, name: string, isUsage: boolean): unknown => {
    if (typeof value === "number") return isUsage ? change(value, name) : value;
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value.map((item) => within(item, name, isUsage));
    const entries = Object.entries(value).map(([key, member]) => [
      key,
      within(member, key, isUsage || IS_USAGE.test(key)),
    ]);
    return Object.fromEntries(entries);
  };
  return changed((text) => JSON.stringify(within(JSON.parse(text), "", false)).replaceAll('"NaN"', "NaN"));
}
const IS_USAGE = /^usage(Metadata)?$/;
/** Makes a counter larger than the one that it is a part of. */
const tooLarge =
  (part: "cached" | "reasoning"): Make =>
  (words, fixture) => {
    const larger = fixture.parts?.[part];
    if (larger === undefined) return "no part of another counter";
    return counters((count, name) => (name === larger ? count * 10 : count))(words, fixture);
  };
const USAGES: Record<string, Make> = {
  absent: changed((text) => JSON.stringify(JSON.parse(text, (key, value) => (IS_USAGE.test(key) ? undefined : value)))),
  zero: counters(() => 0),
  negative: counters((count) => -count),
  "a fraction": counters((count) => count + 0.5),
  text: counters(String),
  "2^31": counters(() => 2 ** 31),
  "2^53 + 1": counters(() => 2 ** 53 + 2),
  "2^63": counters(() => 2 ** 63),
  "cached above the prompt": tooLarge("cached"),
  "reasoning above the answer": tooLarge("reasoning"),
  "NaN, which is no JSON": counters(() => "NaN"),
};

const MAKES: Record<string, Make> = {
  ...BREAKS,
  ...WRITINGS,
  ...ENDS,
  ...Object.fromEntries(Object.entries(USAGES).map(([what, make]) => [`usage: ${what}`, make])),
};

/** Outcome if an answer is lost with the event that has its usage. */
const lostWith = (streamed: Outcome) => ({ streamed, unstreamed: FAILED });
const LOST: Record<string, Partial<Outcomes>> = {
  // Its first event tells usage, before which nothing is answered.
  anthropic: lostWith(FAILED),
  // All of its events do.
  google: lostWith(brokenOff("nothing")),
  "google-vertex": lostWith(brokenOff("nothing")),
  "": lostWith(brokenOff("2 pieces")),
};

type Outcomes = Pick<Case, "streamed" | "unstreamed">;

/** Differences from the service's own protocol, by kind; "" is every other kind. */
const OTHERWISE: Record<string, Record<string, Partial<Outcomes>>> = {
  // The content of the error differs by kind.
  "an error inside a 200": { "": { streamed: brokenOff("a piece", "overloaded") } },
  "an error inside a 200, before the first word": { anthropic: { streamed: refusedWith(503, "overloaded") } },
  "usage: absent": {
    anthropic: lostWith(FAILED),
    cohere: lostWith(brokenOff("2 pieces")),
    mistral: { unstreamed: FAILED },
    bedrock: { unstreamed: FAILED },
  },
  "usage: text": LOST,
  "usage: NaN, which is no JSON": LOST,
};

/** Names of all cases: those of frames have no counterpart on a wire of text. */
export const NAMES: readonly string[] = [...new Set([...CASES.map(({ name }) => name), ...Object.keys(MAKES)])];

/** The cases that the upstreams of a kind play. */
export function casesOf(kind: string): readonly Case[] {
  return PLAYED.get(kind) ?? [];
}

/** Why a case is none for the upstreams of a kind; undefined where it is one. */
export function reasonAgainst(kind: string, name: string): string | undefined {
  return REASONS.get(`${kind} ${name}`);
}

const REASONS = new Map<string, string>();
const PLAYED = new Map(FIXTURES.map((fixture) => [fixture.kind, fixture.kind === OWN_KIND ? CASES : played(fixture)]));

function played(fixture: WireFixture): Case[] {
  const words = new Words(fixture);
  const ofWire = Object.entries(MAKES).flatMap(([name, make]): Case[] => {
    const script = make(words, fixture);
    if (typeof script === "string") {
      REASONS.set(`${fixture.kind} ${name}`, script);
      return [];
    }
    const own = CASES.find((one) => one.name === name) ?? both(BROKEN);
    const otherwise = OTHERWISE[name]?.[fixture.kind] ?? OTHERWISE[name]?.[""];
    return [{ ...own, ...otherwise, name, script }];
  });
  return [...CASES_OF_ANY_WIRE, ...ofWire];
}
