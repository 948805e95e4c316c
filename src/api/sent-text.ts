import type { AnswerPiece } from "./answer.ts";
import type { Delta, OtherFields, ToolCallDelta } from "./chat/completion.ts";
import { isObject, type JsonObject } from "./json.ts";

/** Receives everything of an answer that its client receives, besides headers, the role and the frame of the wire. */
export interface SentTextVisitor {
  /** Text of the reply, its refusal, its tool calls and the transcript of its sound. */
  output: TextVisitor;
  reasoning: TextVisitor;
  /** Names and values of all other fields, known to this service or not. */
  other: TextVisitor;
  /** Length of data in base64, such as sound, images and encrypted reasoning. */
  data(characters: number): void;
  logprobs(tokens: number): void;
}

type TextVisitor = { add(text: string): void };

/** Fields of the wires' frame. Their names, and those of CONTENT, count as nothing, as do their short words. */
const FRAME = new Set(
  `type id object status role name index item_id call_id tool_use_id output_index content_index summary_index
  annotation_index command_index sequence_number start_index end_index stop_reason stop_sequence system_fingerprint service_tier
  execution finish_reason finishReason is_error`.split(/\s+/),
);
const CONTENT = new Set(
  `delta content content_block text thinking signature data partial_json input citations citation item part arguments
  summary encrypted_content refusal annotations annotation url title url_citation audio transcript images image_url
  logprobs reasoning_details format others content_parts output tool_calls function extra_content result b64_json action command commands operation
  candidates parts thought thoughtSignature functionCall args`.split(/\s+/),
);
/** Fields of the whole answer that upstreams repeat in every event. */
const REPEATED = new Set(["system_fingerprint", "service_tier"]);
/** Findings of a provider's filter, which Azure repeats in every event: short words, which are frame up to a length. */
const FILTER_RESULTS = new Set(["content_filter_results", "content_filter_offsets", "prompt_filter_results"]);
const FILTER_RESULTS_CHARACTERS_MAX = 2_048;
/** An id, a name or a number. */
const SHORT_WORD = /^[\w.:/+-]{0,64}$/;

/** Fields that hold data in base64. Shorter data counts as text. */
const DATA = new Set([
  "data",
  "url",
  "b64_json",
  "result",
  "signature",
  "encrypted_content",
  "partial_image_b64",
  "thoughtSignature",
]);
const DATA_CHARACTERS_MIN = 256;
const BASE64 = /^(data:[\w.+/;=-]{1,128},)?[\w+/=-]*$/;

/** Visits everything that a client receives of a piece. */
export function visitSent(piece: AnswerPiece, visitor: SentTextVisitor): void {
  const { delta, native, repeated } = piece;
  if (native !== undefined) {
    // The client receives these events, and not the delta that was read from them.
    if (delta !== undefined) visitDelta(delta, visitor, false);
    for (const { data, counted } of native) visitOther(data, visitor, counted);
    return;
  }
  for (const field in piece) {
    if (NOT_SENT.has(field)) continue;
    const value = piece[field as keyof AnswerPiece];
    if (field === "delta") visitDelta(value as Delta, visitor, true, repeated);
    else if (field === "logprobs") visitOther(visitLogprobs(value, visitor), visitor);
    else visitUnknown(value as OtherFields, visitor);
  }
}

/** Tells whether a field of an upstream is only a short word: wires may repeat it in every event. */
export function isShortWord(value: unknown): boolean {
  return SHORT_WORD.test(String(value));
}

/** Returns the texts of a delta that count as output or reasoning. */
export function deltaTexts(delta: Delta): string[] {
  const texts: string[] = [];
  const counted = { add: (text: string) => texts.push(text) };
  visitDelta(delta, { output: counted, reasoning: counted, other: { add() {} }, data() {}, logprobs() {} }, false);
  return texts;
}

/** Fields of a piece that are not text: the service states its own, or charges by them, and vectors cost nothing. */
const NOT_SENT = new Set<string>([
  "responseId",
  "index",
  "finish_reason",
  "usage",
  "calls",
  "service_tier",
  "vectors",
  "repeated",
] satisfies (keyof AnswerPiece)[]);

function visitDelta(delta: Delta, visitor: SentTextVisitor, isSent: boolean, repeated = NOTHING): void {
  for (const field in delta) {
    const value = delta[field as keyof Delta];
    if (value === undefined || value === null || field === "role") continue;
    if (field === "content" || field === "refusal") visitor.output.add(value as string);
    else if (field === "reasoning_content") visitor.reasoning.add(value as string);
    else if (field === "tool_calls")
      for (const call of value as ToolCallDelta[]) visitCall(call, visitor, isSent, repeated);
    else if (field === "audio" && isSent) visitAudio(value as object, visitor);
    else if (field === "others" && isSent) visitUnknown(value as OtherFields, visitor);
    else if (isSent) visitOther(value, visitor, repeated);
  }
}

/** Visits fields that only pass through. A wire's frame has no such fields, whatever their names. */
function visitUnknown(fields: OtherFields, visitor: SentTextVisitor): void {
  for (const [name, value] of Object.entries(fields)) {
    const isFrame = FRAME.has(name) && !REPEATED.has(name);
    visitOther(isFrame ? [name, value] : { [name]: value }, visitor);
  }
}

function visitCall(
  { function: called, ...rest }: ToolCallDelta,
  visitor: SentTextVisitor,
  isSent: boolean,
  repeated: ReadonlySet<unknown>,
): void {
  const { name = "", arguments: text = "", ...others } = called ?? {};
  if (name !== "") visitor.output.add(name);
  if (text !== "") visitor.output.add(text);
  if (!isSent) return;
  const { isCustom: _mark, ...fields } = rest;
  visitOther(fields, visitor, repeated);
  visitOther(others, visitor);
}

function visitAudio({ transcript, ...rest }: { transcript?: unknown }, visitor: SentTextVisitor): void {
  if (typeof transcript === "string") visitor.output.add(transcript);
  visitOther(typeof transcript === "string" ? rest : { transcript, ...rest }, visitor);
}

/** Visits all text that is not counted already. Does not recurse, because an upstream chooses the depth. */
function visitOther(root: unknown, visitor: SentTextVisitor, counted: Pick<Set<unknown>, "has"> = NOTHING): void {
  const open: { field: string; value: unknown }[] = [{ field: "", value: root }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { field, value } = next;
    if (value === undefined || value === null || counted.has(value)) continue;
    if (typeof value !== "object") visitLeaf(field, value, visitor);
    else if (Array.isArray(value)) for (const item of value) open.push({ field, value: item });
    else {
      for (const [name, inner] of Object.entries(value)) {
        if (name === "logprobs") open.push({ field: name, value: visitLogprobs(inner, visitor) });
        else if (FILTER_RESULTS.has(name) && areShortWords(inner)) continue;
        else {
          if (!FRAME.has(name) && !CONTENT.has(name)) visitor.other.add(name);
          open.push({ field: name, value: inner });
        }
      }
    }
  }
}

const NOTHING: ReadonlySet<unknown> = new Set();

function areShortWords(root: unknown): boolean {
  let characters = 0;
  const open = [root];
  while (open.length > 0 && characters <= FILTER_RESULTS_CHARACTERS_MAX) {
    const value = open.pop();
    if (typeof value === "object" && value !== null) {
      for (const [name, inner] of Object.entries(value)) open.push(name, inner);
    } else if (!isShortWord(value)) return false;
    else characters += String(value).length;
  }
  return open.length === 0;
}

function visitLeaf(field: string, value: unknown, visitor: SentTextVisitor): void {
  const text = String(value);
  if (text === "" || (FRAME.has(field) && SHORT_WORD.test(text))) return;
  if (text.length >= DATA_CHARACTERS_MIN && DATA.has(field) && BASE64.test(text)) visitor.data(text.length);
  else visitor.other.add(text);
}

const LOGPROB_FIELDS = new Set(["token", "logprob", "bytes", "top_logprobs"]);
const TOP_LOGPROBS_MAX = 20;
const TOKEN_BYTES_MAX = 64;

/** Visits the probabilities of tokens, of which each counts as one token. Returns everything that is not in their form. */
function visitLogprobs(logprobs: unknown, visitor: SentTextVisitor): unknown {
  const { content, refusal, ...others }: JsonObject = isObject(logprobs) ? logprobs : { content: logprobs };
  const entries = [content, refusal].flatMap((list) => list ?? []);
  const strange = entries.filter((entry) => !isLogprob(entry, TOP_LOGPROBS_MAX));
  if (strange.length < entries.length) visitor.logprobs(entries.length - strange.length);
  return [...strange, others];
}

function isLogprob(entry: unknown, topMax: number): boolean {
  if (!isObject(entry)) return false;
  const { token, logprob, bytes, top_logprobs: top } = entry;
  if (Object.keys(entry).some((name) => !LOGPROB_FIELDS.has(name))) return false;
  if (typeof token !== "string" || Buffer.byteLength(token) > TOKEN_BYTES_MAX || !isNumberOrNull(logprob)) return false;
  if (!isList(bytes, TOKEN_BYTES_MAX, isNumberOrNull)) return false;
  return isList(top, topMax, (alternative) => isLogprob(alternative, 0));
}

function isNumberOrNull(value: unknown): boolean {
  return value === undefined || value === null || typeof value === "number";
}

function isList(value: unknown, most: number, isItem: (item: unknown) => boolean): boolean {
  if (value === undefined || value === null) return true;
  return Array.isArray(value) && value.length <= most && value.every(isItem);
}
