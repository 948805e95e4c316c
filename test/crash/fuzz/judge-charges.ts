import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import type { RequestRow } from "./books.ts";
import { inboundOf, marksIn } from "./client.ts";
import type { Ask, Call, Intent, Report } from "./intent.ts";

/** An inclusive range of counts. */
interface Range {
  least: number;
  most: number;
}

/** Input, cached and written input, output and reasoning. */
type Classes = [number, number, number, number, number];

/** One way in which a request may be charged: exactly these classes, or input and output within ranges. */
interface Option {
  name: string;
  input: Range;
  output: Range;
  exactly?: Classes;
  basis: string;
}

/** A charged request, with the call that it was made for and the last call of its upstream. */
export interface Charged {
  row: RequestRow;
  /** Its tokens by class: input, cached, written, output and reasoning. */
  tokens: number[];
  intent: Intent;
  call: Call | undefined;
  ask: Ask;
}

/** Tokenizers count joined text otherwise than its parts, and a long text by its beginning. */
const TOLERANCE = 0.12;
const SLACK = 16;
const TEMPLATE_MOST = 1_200;
const DOUBT = 64;
/** Documented rate of a model of which fewer than a hundred answers are known, in tokens a second. */
const USUAL_RATE = 50;
const USUAL_MOST = 4_096;
/** Fields and types by which the wires show reasoning. */
const REASONING = /"(reasoning|reasoning_content|thinking)"|reasoning_/;

/** Returns the faults in the tokens of a charge: docs/charging.md, "What is charged" and "Estimates and counts". */
export function chargeFaults(charged: Charged): string[] {
  const { row, tokens, intent, ask } = charged;
  const [input = 0, cached = 0, written = 0, output = 0, reasoning = 0] = tokens;
  const [ofPrompt, ofAnswer] = [input + cached + written, output + reasoning];
  if (ofAnswer > ask.maxTokens) return [`${ofAnswer} tokens of output are charged of at most ${ask.maxTokens}`];
  const counted = countsOf(charged);
  const options = row.ending === "recovered" ? [checkpoint(charged, counted)] : optionsFor(charged, counted);
  const fits = ({ input: prompt, output: answer, exactly, basis }: Option) =>
    isIn(ofPrompt, prompt) &&
    isIn(ofAnswer, answer) &&
    (exactly === undefined || exactly.join() === tokens.join()) &&
    basis.includes(row.basis ?? "none");
  if (options.some(fits)) return [];
  const allowed = options.map(
    (option) => `${option.name} ${textOf(option.input)}/${textOf(option.output)} ${option.exactly ?? ""}`,
  );
  return [`${row.basis} ${tokens.join("+")} is none of: ${allowed.join("; ")} (${intent.answer.reports.kind})`];
}

const textOf = ({ least, most }: Range) => `${least}-${most}`;
const isIn = (count: number, { least, most }: Range) => count >= least && count <= most;

interface Counts {
  prompt: Range;
  /** Everything that the client received, and everything that the upstream wrote. */
  answer: Range;
  /** The reply and its reasoning alone, and the bytes of that which the client received. */
  text: Range;
  bytes: number;
}

function countsOf({ intent, call, ask }: Charged): Counts {
  const prompt = countTokens(intent.prompt);
  const pieces = intent.answer.pieces.slice(0, ask.written);
  const sent = pieces.map(({ events, whole }) => JSON.stringify(intent.isStreamed ? events : whole)).join("\n");
  const leaves = pieces.flatMap((piece) => piece.leaves);
  const got = marksIn(call?.text ?? "");
  const received = leaves.filter(({ mark }) => got.has(mark));
  const least = (texts: readonly { text: string }[]) =>
    Math.max(0, Math.floor(countTokens(texts.map(({ text }) => text).join(" ")) * (1 - TOLERANCE)) - SLACK);
  const texts = received.filter(({ isText }) => isText);
  const most = pieces.length === 0 ? 0 : Math.ceil(countTokens(sent) * (1 + TOLERANCE)) + SLACK;
  return {
    prompt: { least: Math.floor(prompt * (1 - TOLERANCE)), most: Math.ceil(prompt * (1 + TOLERANCE)) + SLACK },
    answer: { least: least(received), most },
    text: { least: least(texts), most },
    bytes: texts.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0),
  };
}

/** A service that was killed charges what it noted last: at most a prompt by its bytes, and what was sent. */
function checkpoint({ intent, ask }: Charged, { answer }: Counts): Option {
  const bytes = Buffer.byteLength(JSON.stringify(intent.answer.pieces));
  const reported = ask.reports.map(({ report }) => Number(report.prompt)).filter((prompt) => prompt > 0);
  const most = Math.max(Buffer.byteLength(intent.prompt) + TEMPLATE_MOST, ...reported);
  const output = {
    least: 0,
    most: Math.max(answer.most, bytes, ...ask.reports.map(({ report }) => Number(report.completion) || 0)),
  };
  return { name: "a checkpoint", input: { least: 0, most }, output, basis: "counted reported bounded" };
}

/** Returns the ways in which an answer may be charged, by the reports that its upstream wrote and by its end. */
function optionsFor(charged: Charged, counts: Counts): Option[] {
  const { row, intent, ask } = charged;
  if (row.ending !== "client_disconnected") return optionsOf(charged, counts, false);
  if (!intent.isStreamed || intent.reasons) return optionsOf(charged, counts, true);
  const shown = intent.answer.pieces.slice(0, ask.written).map(({ events }) => JSON.stringify(events));
  // A model that shows reasoning reasons, if the service had read that when the client left.
  const mayReason = shown.some((events) => REASONING.test(events));
  return [...optionsOf(charged, counts, false), ...(mayReason ? optionsOf(charged, counts, true) : [])];
}

function optionsOf(charged: Charged, counts: Counts, isHidden: boolean): Option[] {
  const { row, intent, ask } = charged;
  const seen = ask.reports;
  const isComplete = row.ending === "complete";
  const output = isHidden ? withEstimate(charged, counts.answer) : limited(counts.answer, ask.maxTokens);
  const counted: Option = {
    name: "counted",
    input: counts.prompt,
    output,
    basis: isHidden ? "counted estimated" : "counted",
  };
  // A complete answer has its last report; of another one it is not known which the service had read.
  const last = seen.at(-1);
  const possible = isComplete ? (last === undefined ? [] : [last]) : seen;
  const options = possible.flatMap((one) => reportOptions(charged, counts, one, isHidden));
  const mayHaveNone = !isComplete || last === undefined || validOf(last.report, charged) === undefined;
  if (mayHaveNone) options.push(counted);
  // Unusable counters of the Messages wire leave those of its beginning in force, for the input at least.
  const earlier = intent.answer.wire === "messages" && mayHaveNone ? seen.slice(0, -1) : [];
  return [...options, ...earlier.flatMap((one) => reportOptions(charged, counts, { ...one, after: -1 }, isHidden))];
}

function reportOptions(
  charged: Charged,
  counts: Counts,
  { report, after }: Ask["reports"][number],
  isHidden: boolean,
): Option[] {
  const { intent, ask } = charged;
  const valid = validOf(report, charged);
  if (valid === undefined) return [];
  const { maxTokens } = ask;
  const [prompt, completion] = [valid[0] + valid[1] + valid[2], valid[3] + valid[4]];
  const bytes = Buffer.byteLength(intent.prompt);
  const input = { least: Math.min(prompt, bytes), most: Math.min(prompt, bytes + TEMPLATE_MOST) };
  const { least, most } = isHidden ? withEstimate(charged, counts.answer) : counts.answer;
  const more: Option = {
    name: "a report and more",
    input,
    output: limited({ least: Math.max(completion, least), most: Math.max(completion, most) }, maxTokens),
    basis: isHidden ? "counted bounded estimated" : "counted bounded",
  };
  const followed = followedBy(charged, after);
  if (followed === "certainly") return [more];
  const exact = exactOptions(charged, counts, valid, input);
  // Until an answer is finished, its report does not cover what a model may have thought.
  if (isHidden) return ask.isFinished ? [more, ...exact] : [more];
  return followed === "perhaps" ? [more, ...exact] : exact;
}

/** Tells whether the service read more of an answer after a report: of what broke off, only what the client received. */
function followedBy({ row, intent, call, ask }: Charged, after: number): "certainly" | "perhaps" | "not" {
  const later = intent.answer.pieces.slice(Math.max(0, after), ask.written);
  if (later.length === 0) return "not";
  // Pieces such as `true` under an unknown name have no marks; whether the service passed them on is not seen.
  const leaves = later.flatMap((piece) => piece.leaves);
  if (leaves.length === 0) return "perhaps";
  const got = marksIn(call?.text ?? "");
  return row.ending === "complete" || leaves.some(({ mark }) => got.has(mark)) ? "certainly" : "perhaps";
}

/** Returns the ways to charge a report that covers the whole answer. */
function exactOptions({ intent, ask }: Charged, counts: Counts, valid: Classes, input: Range): Option[] {
  const { maxTokens } = ask;
  const [prompt, completion] = [valid[0] + valid[1] + valid[2], valid[3] + valid[4]];
  const bytes = Buffer.byteLength(intent.prompt);
  const isAbove = completion > maxTokens || prompt > bytes;
  const isBounded = completion > maxTokens || prompt > bytes + TEMPLATE_MOST;
  const asReported: Option = {
    name: "reported",
    input,
    output: fixed(Math.min(completion, maxTokens)),
    ...(!isAbove && { exactly: valid }),
    basis: isBounded ? "bounded" : isAbove ? "reported bounded" : "reported",
  };
  if (intent.inbound === "embeddings") return embeddingOptions(asReported, counts, prompt);
  const tooLow: Option = {
    name: "counted, not as reported",
    input,
    output: limited(counts.text, maxTokens),
    basis: "counted bounded",
  };
  // Credible is at least half of the text, or at most 64 tokens less.
  const mustCount = completion < counts.text.least / 2 && counts.text.least - completion > DOUBT;
  const mustReport = completion >= counts.text.most / 2 || counts.text.most - completion <= DOUBT;
  // A report of a token for eight bytes is not compared: docs/ledger.md.
  if (mustCount && completion < counts.bytes / 8) return [tooLow];
  return mustReport ? [asReported] : [asReported, tooLow];
}

/** Embeddings are charged by their input alone: a report far below it is not believed. */
function embeddingOptions(asReported: Option, { prompt: range }: Counts, prompt: number): Option[] {
  const counted: Option = { name: "counted", input: range, output: fixed(0), basis: "counted" };
  if (prompt < range.least / 2 && range.least - prompt > DOUBT) return [counted];
  return prompt >= range.most / 2 || range.most - prompt <= DOUBT ? [asReported] : [asReported, counted];
}

/** The larger of the count and the time at the documented rate, where fewer than a hundred answers are known. */
function withEstimate({ row, intent, call, ask }: Charged, { least, most }: Range): Range {
  if (!intent.reasons) return { least: Math.min(least, ask.maxTokens), most: ask.maxTokens };
  const leftMs = (call?.endedAt ?? ask.at) - ask.at;
  const heldMs = Number(row.ended_at - row.made_at);
  const estimate = (ms: number) => Math.min(USUAL_MOST, Math.floor((Math.max(0, ms) / 1_000) * USUAL_RATE));
  return limited(
    { least: Math.max(least, estimate(leftMs) - 1), most: Math.max(most, estimate(heldMs) + 2) },
    ask.maxTokens,
  );
}

const fixed = (count: number): Range => ({ least: count, most: count });

function limited({ least, most }: Range, bound: number): Range {
  return { least: Math.min(least, bound), most: Math.min(most, bound) };
}

/** Returns a report's disjoint classes; undefined if it cannot be true. */
function validOf(report: Report, { intent, call }: Charged): Classes | undefined {
  const { wire } = intent.answer;
  const isTranslated = wire !== inboundOf(intent, call?.repetition ?? "first");
  const { prompt, completion, cached = 0, written = 0, reasoning = 0 } = report;
  const all = wire === "embeddings" ? [prompt, 0, 0, 0, 0] : [prompt, completion, cached, written, reasoning];
  if (!all.every((count) => typeof count === "number" && Number.isInteger(count) && count >= 0)) return undefined;
  let [ofPrompt = 0, ofAnswer = 0, read = 0, wrote = 0, thought = 0] = all as number[];
  // xAI counts cached tokens beside the others for some models, and has no cache writes.
  if (wire === "responses" && read > ofPrompt) ofPrompt += read;
  if (wire === "responses" && isTranslated) wrote = 0;
  if (ofPrompt + ofAnswer === 0 || read + wrote > ofPrompt || thought > ofAnswer) return undefined;
  return [ofPrompt - read - wrote, read, wrote, ofAnswer - thought, thought];
}
