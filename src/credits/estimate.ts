import type { ChatCompletionRequest, RequestMessage } from "../api/chat/request.ts";
import { ceilDivide, type MicroCredits, PICO_PER_MICRO, type PicoCredits } from "./amount.ts";
import type { UnitPrices } from "./price.ts";

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
  /** Part of `likely` that is not text: template tokens and images. */
  likelyBesideText: number;
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
/** A streamed piece up to this long is one token to every tokenizer in wide use; longer pieces carry several. */
const BYTES_OF_ONE_TOKEN = 12;

/** Usual tokens of a file, a recording or a video, whose length only its provider knows: some pages, or a minute. */
const TOKENS_OF_MEDIA_LIKELY = 2_000;

/** Bounds of a model that limit its prompts. */
export interface PromptLimits {
  /** Bound of tokens for one image. */
  imageTokensMax: number;
  contextWindow: number;
}

/**
 * Estimates the prompt of a request. The tokens of files, audio and video are not bounded by their bytes, so with one of
 * them the prompt's bound is at least the model's context window.
 */
export function estimatePrompt(
  request: ChatCompletionRequest,
  { imageTokensMax, contextWindow }: PromptLimits,
): PromptEstimate {
  let bytes = 0;
  const { images, media, toolCalls, opaqueBytes } = visitPrompt(request, (text) => {
    bytes += Buffer.byteLength(text);
  });
  const messages = request.messages.length + (request.instructions === undefined ? 0 : 1);
  const tools = request.tools?.length ?? 0;
  const imageTokens = images * imageTokensMax;
  const likelyBesideText =
    messages * TEMPLATE_TOKENS_A_MESSAGE_LIKELY +
    (tools + toolCalls) * TEMPLATE_TOKENS_A_TOOL_LIKELY +
    TEMPLATE_TOKENS_A_PROMPT +
    imageTokens +
    media * TOKENS_OF_MEDIA_LIKELY;
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
      // No image and no file is less than one token.
      Math.min(images, imageTokens) +
      media,
    likely: Math.ceil(bytes / BYTES_A_TOKEN_LIKELY) + likelyBesideText,
    likelyBesideText,
    most: media === 0 ? most : Math.max(most, contextWindow),
  };
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
  images: number;
  /** Files, recordings and videos. */
  media: number;
  toolCalls: number;
}

function visitPrompt(request: ChatCompletionRequest, visit: (text: string) => void): OtherParts {
  const others: OtherParts = { opaqueBytes: 0, images: 0, media: 0, toolCalls: 0 };
  for (const message of request.messages) visitMessage(message, visit, others);
  if (request.instructions !== undefined) visit(request.instructions);
  if (request.tools !== undefined && request.tools.length > 0) visit(JSON.stringify(request.tools));
  if (request.response_format?.type === "json_schema") visit(JSON.stringify(request.response_format));
  // A template may write them into the prompt.
  for (const value of [request.chat_template_kwargs, request.web_search_options]) {
    if (value !== undefined) others.opaqueBytes += Buffer.byteLength(JSON.stringify(value));
  }
  return others;
}

function visitMessage(message: RequestMessage, visit: (text: string) => void, others: OtherParts): void {
  if (typeof message.content === "string") visit(message.content);
  else if (message.content !== undefined) {
    for (const part of message.content) {
      if (part.type === "text") visit(part.text);
      else if (part.type === "refusal") visit(part.refusal);
      else if (part.type === "image_url") others.images += 1;
      else others.media += 1;
    }
  }
  for (const text of [message.name, message.reasoning_content, message.refusal, message.tool_call_id]) {
    if (text !== undefined) visit(text);
  }
  if (message.reasoning_details !== undefined) {
    others.opaqueBytes += Buffer.byteLength(JSON.stringify(message.reasoning_details));
  }
  for (const call of message.tool_calls ?? []) {
    others.toolCalls += 1;
    if (call.extra_content !== undefined) others.opaqueBytes += Buffer.byteLength(JSON.stringify(call.extra_content));
    visit(call.id);
    visit(call.function.name);
    visit(call.function.arguments);
  }
}

/** Output tokens that the credits must cover for a request without `max_tokens` to be admitted. */
export const OUTPUT_TOKENS_LEAST = 256;

/** The largest use of a request, as far as it is known before it runs. */
export interface HoldNeed {
  promptTokensMost: number;
  /** Output tokens that the credits must cover at least. */
  outputTokensLeast: number;
  outputTokensMost: number;
  prices: UnitPrices;
}

/** Returns the least and the largest amount of a hold, with input and output at their dearest classes. */
export function holdBounds(need: HoldNeed): { least: MicroCredits; most: MicroCredits } {
  const input = inputPico(need);
  const output = outputPrice(need.prices);
  return {
    least: ceilDivide(input + BigInt(need.outputTokensLeast) * output, PICO_PER_MICRO),
    most: ceilDivide(input + BigInt(need.outputTokensMost) * output, PICO_PER_MICRO),
  };
}

/** Returns the output tokens that an amount covers after the input, at most those of the need; 0 if it does not cover the input. */
export function affordableOutputTokens(amount: MicroCredits, need: HoldNeed): number {
  const left = amount * PICO_PER_MICRO - inputPico(need);
  if (left < 0n) return 0;
  const output = outputPrice(need.prices);
  if (output === 0n) return need.outputTokensMost;
  const tokens = left / output;
  return tokens > BigInt(need.outputTokensMost) ? need.outputTokensMost : Number(tokens);
}

function inputPico({ promptTokensMost, prices }: HoldNeed): PicoCredits {
  return BigInt(promptTokensMost) * largest(prices.input, prices.cachedInput, prices.cacheWrite);
}

function outputPrice(prices: UnitPrices): PicoCredits {
  return largest(prices.output, prices.reasoning);
}

function largest(...values: bigint[]): bigint {
  return values.reduce((a, b) => (a > b ? a : b));
}
