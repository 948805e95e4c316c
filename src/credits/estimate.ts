import type { ChatCompletionRequest, ContentPart, RequestMessage } from "../api/chat/request.ts";
import type { EmbeddingInput } from "../api/embeddings/request.ts";
import { type CallCounts, PRICE_CLASSES, PRICE_ROWS } from "../api/price-classes.ts";
import { ceilDivide, type MicroCredits, PICO_PER_MICRO, type PicoCredits } from "./amount.ts";
import { computedOnce, type UnitPrices, withoutPrices } from "./price.ts";

/**
 * Bounds of the tokens of a prompt, without a tokenizer: the event loop tokenizes nothing.
 * `most` bounds the report of any upstream, because a byte-level tokenizer never makes more tokens than bytes; it includes
 * the tokens that chat templates add. `likely` is the usual four bytes per token. `least` is the count of a tokenizer with
 * very long tokens and the shortest chat template; only text that is mostly long runs of one character, which some
 * tokenizers make single tokens, could have less.
 */
export interface PromptEstimate {
  least: number;
  likely: number;
  most: number;
  /** Part of `likely` that is not text: template tokens, images and other media. */
  likelyBesideText: number;
  /** Part of `likely` that images with `detail: low` have only at providers that ignore it. */
  lowDetailSavings?: number;
  /** Tokens of the text by the token counter; absent where it was not needed or did not answer. */
  textTokens?: number;
  /** True for files, audio and video, which can hold sound: without one no token is an audio token. */
  hasMedia: boolean;
  /** True if the request marks a part to be cached for an hour: without a mark no cache write is of that kind. */
  hasHourCache: boolean;
  /** Choices of the answer, each with a bound of its own. */
  choices: number;
  /** Calls of a request whose answer does not show them, as far as the request bounds them; absent if it has none. */
  calls?: CallCounts;
}

export interface PromptLimits {
  imageTokensMax: number;
  /** Tokens; the bound of a prompt with files, audio or video. */
  contextWindow: number;
}

/**
 * Marks of the shortest template in wide use: Mistral's ends an assistant message with one token and puts two around a
 * user message (docs.mistral.ai, "Tokenization"). OpenAI's models need three and the role ("How to count tokens with
 * tiktoken" in OpenAI's cookbook), which is the usual number.
 */
const TEMPLATE_TOKENS_A_MESSAGE_LEAST = 1;
const TEMPLATE_TOKENS_A_MESSAGE_LIKELY = 4;
const TEMPLATE_TOKENS_A_MESSAGE_MOST = 8;
const TEMPLATE_TOKENS_A_PROMPT = 3;
/**
 * Some templates begin with a system message of their own: that of gpt-oss has about 75 tokens (openai/harmony), that of
 * Llama 3.1 about 25.
 */
const TEMPLATE_TOKENS_A_PROMPT_MOST = 256;
/** Template tokens of a tool and of a tool call. The cookbook counts seven or more for a tool. */
const TEMPLATE_TOKENS_A_TOOL_LEAST = 1;
const TEMPLATE_TOKENS_A_TOOL_LIKELY = 4;
const TEMPLATE_TOKENS_A_TOOL_MOST = 16;
/** Tokens of the system prompt that providers add before the first tool: Anthropic documents up to 530. */
const TEMPLATE_TOKENS_BEFORE_TOOLS_MOST = 600;
const BYTES_A_TOKEN_LIKELY = 4;
const BYTES_A_TOKEN_MOST = 16;
/** Tokens that a tokenizer or an upstream puts around an input of embeddings: BERT's adds two, some models a short prefix. */
const TEMPLATE_TOKENS_AN_INPUT_MOST = 8;
/** A streamed piece up to this long is one token to every tokenizer in wide use; longer pieces carry several. */
const BYTES_OF_ONE_TOKEN = 12;

/**
 * Estimates the prompt of a request to a model. The tokens of files, audio and video are not bounded by their bytes, so
 * with one of them the prompt's bound is at least the model's context window.
 */
export function estimatePrompt(
  request: ChatCompletionRequest,
  { imageTokensMax, contextWindow }: PromptLimits,
): PromptEstimate {
  let bytes = 0;
  const { images, media, toolCalls, opaqueBytes, hasHourCache } = visitPrompt(request, (text) => {
    bytes += Buffer.byteLength(text);
  });
  const messages = request.messages.length + (request.instructions === undefined ? 0 : 1);
  const tools = request.tools?.length ?? 0;
  const imageTokens = images.length * imageTokensMax;
  const imageTokensLeast = Math.ceil(imageTokensMax / IMAGE_PART_LEAST);
  const ofImages = images.map((part) => likelyImageTokens(part, imageTokensMax));
  const isLow = images.map(({ image_url: { detail } }) => detail === "low");
  const likelyBesideText =
    messages * TEMPLATE_TOKENS_A_MESSAGE_LIKELY +
    (tools + toolCalls) * TEMPLATE_TOKENS_A_TOOL_LIKELY +
    TEMPLATE_TOKENS_A_PROMPT +
    sumOf(ofImages) +
    sumOf(media.map((part) => Math.min(likelyMediaTokens(part), contextWindow)));
  const most =
    bytes +
    opaqueBytes +
    messages * TEMPLATE_TOKENS_A_MESSAGE_MOST +
    (tools + toolCalls) * TEMPLATE_TOKENS_A_TOOL_MOST +
    (tools > 0 ? TEMPLATE_TOKENS_BEFORE_TOOLS_MOST : 0) +
    TEMPLATE_TOKENS_A_PROMPT_MOST +
    imageTokens;
  return {
    least:
      Math.ceil(bytes / BYTES_A_TOKEN_MOST) +
      messages * TEMPLATE_TOKENS_A_MESSAGE_LEAST +
      (tools + toolCalls) * TEMPLATE_TOKENS_A_TOOL_LEAST +
      // No image is less than one token, and no other medium.
      Math.min(images.length, imageTokens) +
      media.length,
    likely: Math.ceil(bytes / BYTES_A_TOKEN_LIKELY) + likelyBesideText,
    likelyBesideText,
    lowDetailSavings: sumOf(ofImages.map((tokens, place) => (isLow[place] ? tokens - imageTokensLeast : 0))),
    most: media.length === 0 ? most : Math.max(most, contextWindow),
    hasMedia: media.length > 0,
    hasHourCache,
    choices: request.n ?? 1,
  };
}

/** Part of an image's bound that it has at low detail, and with hardly any pixels: 85 of 1,445 tokens ("Images and vision" of OpenAI). */
const IMAGE_PART_LEAST = 17;
/** "tokens = (width px * height px)/750" ("Vision" of Anthropic); the tiles of OpenAI and Google have more pixels a token. */
const PIXELS_A_TOKEN = 750;
/** Pixels of an image whose header does not state them: Anthropic suggests at most so many. */
const PIXELS_LIKELY = 1_150_000;
/** Base64 characters in which the size is looked for: cameras write a preview before it. */
const IMAGE_HEADER_CHARACTERS = 128 * 1024;

/**
 * A larger bound is gpt-4o-mini's: 2,833 tokens an image, and 5,667 for each of at most 8 tiles. An image above a tile is scaled
 * to four of them, unless it is much wider than high ("Images and vision" of OpenAI).
 */
const BOUND_WITHOUT_TILES = 32_768;
const PIXELS_A_TILE = 512 * 512;

function likelyImageTokens({ image_url: { url } }: ImagePart, imageTokensMax: number): number {
  const pixels = pixelsOf(url) ?? PIXELS_LIKELY;
  const least = imageTokensMax / IMAGE_PART_LEAST;
  const ofTiles = 2 * least * (pixels > PIXELS_A_TILE ? 4 : 1);
  const ofPixels = imageTokensMax > BOUND_WITHOUT_TILES ? ofTiles : pixels / PIXELS_A_TOKEN;
  return Math.min(imageTokensMax, Math.ceil(least + ofPixels));
}

/** Returns the pixels of an image in a data URL, as its header states them; undefined for an address and an unknown format. */
function pixelsOf(url: string): number | undefined {
  const start = url.indexOf(",") + 1;
  if (!url.startsWith("data:") || start === 0) return undefined;
  const bytes = Buffer.from(url.slice(start, start + IMAGE_HEADER_CHARACTERS), "base64");
  if (bytes.length < 24) return undefined;
  if (bytes.readUInt32BE(0) === 0x89504e47) return bytes.readUInt32BE(16) * bytes.readUInt32BE(20);
  if (bytes.toString("latin1", 0, 3) === "GIF") return bytes.readUInt16LE(6) * bytes.readUInt16LE(8);
  if (bytes.readUInt16BE(0) !== 0xffd8) return undefined;
  // The segments of a JPEG up to the one that begins a frame.
  for (let at = 2; at + 9 <= bytes.length && bytes[at] === 0xff; at += 2 + bytes.readUInt16BE(at + 2)) {
    const marker = bytes.readUInt8(at + 1);
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return bytes.readUInt16BE(at + 5) * bytes.readUInt16BE(at + 7);
  }
  return undefined;
}

/** Usual characters of data per token: of a file, whose pages are text and images, and of sound and video. */
const FILE_CHARACTERS_A_TOKEN = 12;
const SOUND_CHARACTERS_A_TOKEN = 500;
/** Usual tokens of a medium that is sent by its address: some pages, or a minute. */
const TOKENS_OF_MEDIUM = 2_000;

function likelyMediaTokens(part: MediumPart): number {
  const data = dataOf(part);
  if (data === undefined) return TOKENS_OF_MEDIUM;
  return Math.ceil(data.length / (part.type === "file" ? FILE_CHARACTERS_A_TOKEN : SOUND_CHARACTERS_A_TOKEN));
}

function dataOf(part: MediumPart): string | undefined {
  if (part.type === "input_audio") return part.input_audio.data;
  if (part.type === "file") return part.file.file_data;
  const { url } = part.video_url;
  return url.startsWith("data:") ? url : undefined;
}

function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** The parts and calls that a request can be charged for on a route. */
export interface Possible extends Pick<PromptEstimate, "hasMedia" | "hasHourCache"> {
  /** Searches that are charged at most, and images. */
  callsMost: number;
}

/** Returns prices without those of parts and calls that a request cannot have, so that its hold does not cover them. */
export function possiblePrices(prices: UnitPrices, possible: Possible): UnitPrices {
  return withoutPrices(prices, ({ onlyIf }) => onlyIf !== undefined && !possible[onlyIf]);
}

/** Returns the texts of a prompt, for a tokenizer. */
export function promptTexts(request: ChatCompletionRequest): string[] {
  const texts: string[] = [];
  visitPrompt(request, (text) => texts.push(text));
  return texts;
}

/** Estimates the tokens of a streamed piece from its bytes: for checkpoints, and if no tokenizer can be used. */
export function tokensOfPiece(bytes: number): number {
  if (bytes === 0) return 0;
  return bytes <= BYTES_OF_ONE_TOKEN ? 1 : Math.ceil(bytes / BYTES_A_TOKEN_LIKELY);
}

/** The parts of a prompt that are not text. */
interface OtherParts {
  /** Size of opaque provider data that clients send back, which the provider may or may not count. */
  opaqueBytes: number;
  images: ImagePart[];
  media: MediumPart[];
  toolCalls: number;
  hasHourCache: boolean;
}

type ImagePart = Extract<ContentPart, { type: "image_url" }>;
/** A file can hold anything, sound among it. */
type MediumPart = Extract<ContentPart, { type: "file" | "input_audio" | "video_url" }>;

function visitPrompt(request: ChatCompletionRequest, visit: (text: string) => void): OtherParts {
  const others: OtherParts = { opaqueBytes: 0, images: [], media: [], toolCalls: 0, hasHourCache: false };
  for (const message of request.messages) visitMessage(message, visit, others);
  if (request.instructions !== undefined) visit(request.instructions);
  if (request.tools !== undefined && request.tools.length > 0) visit(JSON.stringify(request.tools));
  others.hasHourCache ||= request.tools?.some((tool) => tool.cache_control?.ttl === "1h") === true;
  if (request.response_format?.type === "json_schema") visit(JSON.stringify(request.response_format));
  for (const field of IN_TEMPLATES) {
    if (request[field] !== undefined) others.opaqueBytes += Buffer.byteLength(JSON.stringify(request[field]));
  }
  return others;
}

/** Fields that a template may write into the prompt. */
const IN_TEMPLATES = [
  "chat_template_kwargs",
  "enable_thinking",
  "web_search_options",
  "guided_json",
  "guided_regex",
  "guided_choice",
  "guided_grammar",
] as const;

function visitMessage(message: RequestMessage, visit: (text: string) => void, others: OtherParts): void {
  if (typeof message.content === "string") visit(message.content);
  else if (message.content !== undefined) {
    for (const part of message.content) {
      visitPart(part, visit, others);
    }
  }
  const { reasoning_details: details, audio } = message;
  // The provider keeps the sound, whose length is not known here.
  if (audio !== undefined) others.media.push({ type: "file", file: { file_id: audio.id } });
  if (details !== undefined) others.opaqueBytes += Buffer.byteLength(JSON.stringify(details));
  for (const text of [message.name, message.reasoning_content, message.refusal, message.tool_call_id]) {
    if (text !== undefined) visit(text);
  }
  for (const call of message.tool_calls ?? []) {
    others.toolCalls += 1;
    if (call.extra_content !== undefined) others.opaqueBytes += Buffer.byteLength(JSON.stringify(call.extra_content));
    visit(call.id);
    visit(call.function.name);
    visit(call.function.arguments);
  }
}

function visitPart(part: ContentPart, visit: (text: string) => void, others: OtherParts): void {
  if ("cache_control" in part && part.cache_control?.ttl === "1h") others.hasHourCache = true;
  if (part.type === "text") visit(part.text);
  else if (part.type === "refusal") visit(part.refusal);
  else if (part.type === "image_url") others.images.push(part);
  else others.media.push(part);
  if (part.type === "file" && part.file.filename !== undefined) visit(part.file.filename);
}

/** Bounds the tokens of the inputs of embeddings, as `estimatePrompt` does: by the bytes of texts, or by the number of token ids. */
export function estimateInputs(inputs: readonly EmbeddingInput[]): PromptEstimate {
  const bounds = inputs.map(estimateInput);
  const sum = (bound: "least" | "likely" | "most") => sumOf(bounds.map((one) => one[bound]));
  return {
    least: sum("least"),
    likely: sum("likely"),
    most: sum("most"),
    likelyBesideText: sumOf(inputs.map((input) => (typeof input === "string" ? 0 : input.length))),
    hasMedia: false,
    hasHourCache: false,
    choices: 1,
  };
}

/** Bounds the tokens of one input. */
export function estimateInput(input: EmbeddingInput): Pick<PromptEstimate, "least" | "likely" | "most"> {
  const { length } = input;
  if (typeof input !== "string") return { least: length, likely: length, most: length + TEMPLATE_TOKENS_AN_INPUT_MOST };
  const bytes = Buffer.byteLength(input);
  return {
    least: Math.ceil(bytes / BYTES_A_TOKEN_MOST),
    likely: Math.ceil(bytes / BYTES_A_TOKEN_LIKELY),
    most: bytes + TEMPLATE_TOKENS_AN_INPUT_MOST,
  };
}

/** Output tokens that the credits must cover for a request without `max_tokens` to be admitted. */
export const OUTPUT_TOKENS_LEAST = 256;

/** The largest use of a request, as far as it is known before it runs. */
export interface HoldNeed {
  promptTokensMost: number;
  outputTokensLeast: number;
  outputTokensMost: number;
  /** Searches that are charged at most, and images. */
  callsMost: number;
  prices: UnitPrices;
}

/** Returns the least and the largest amount of a hold, with input and output at their dearest classes. */
export function holdBounds(need: HoldNeed): { least: MicroCredits; most: MicroCredits } {
  const { output } = dearestOf(need.prices);
  const fixed = fixedPico(need);
  return {
    least: ceilDivide(fixed + BigInt(need.outputTokensLeast) * output, PICO_PER_MICRO),
    most: ceilDivide(fixed + BigInt(need.outputTokensMost) * output, PICO_PER_MICRO),
  };
}

/** Returns the output tokens that an amount covers after the input, at most those of the need; 0 if it does not cover the input. */
export function affordableOutputTokens(amount: MicroCredits, need: HoldNeed): number {
  const { output } = dearestOf(need.prices);
  const left = amount * PICO_PER_MICRO - fixedPico(need);
  if (left < 0n) return 0;
  if (output === 0n) return need.outputTokensMost;
  const tokens = left / output;
  return tokens > BigInt(need.outputTokensMost) ? need.outputTokensMost : Number(tokens);
}

/** Returns the largest cost of everything but the output: the prompt, the request itself, and its calls. */
function fixedPico({ promptTokensMost, callsMost, prices }: HoldNeed): PicoCredits {
  const { input, once, calls } = dearestOf(prices);
  return BigInt(promptTokensMost) * input + once + BigInt(callsMost) * calls;
}

/**
 * Returns the highest price of the classes of each direction and of their parts, and the sums of the prices of the calls that a
 * request makes once, and up to `callsMost` times.
 */
const dearestOf = computedOnce((prices: UnitPrices) => {
  const dearest = { input: 0n, output: 0n, once: 0n, calls: 0n };
  for (const row of PRICE_ROWS) {
    const { direction } = row.partOf === undefined ? row : PRICE_CLASSES[row.partOf];
    const price = prices[row.class] ?? 0n;
    if (direction === undefined) dearest[row.onlyIf === "callsMost" ? "calls" : "once"] += price;
    else if (price > dearest[direction]) dearest[direction] = price;
  }
  return dearest;
});
