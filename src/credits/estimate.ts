import type { ChatCompletionRequest, RequestMessage } from "../api/request.ts";

/**
 * Bounds of the tokens of a prompt, without a tokenizer: nothing is tokenized on the event loop.
 * `most` bounds what any upstream can report, because a byte-level tokenizer never makes more tokens than there are
 * bytes; it includes the tokens that chat templates add. `likely` is the usual four bytes a token. `least` is what even a
 * tokenizer of very long tokens needs, with the marks of the shortest chat template; only text that is mostly long runs
 * of one character, of which some tokenizers make single tokens, could need less.
 */
export interface PromptEstimate {
  least: number;
  likely: number;
  most: number;
  /** The part of `likely` that is not text: template tokens and images. */
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
/** What providers put before the first tool, as a system prompt of their own: Anthropic documents up to 530 tokens. */
const TEMPLATE_TOKENS_BEFORE_TOOLS_MOST = 600;
const BYTES_A_TOKEN_LIKELY = 4;
const BYTES_A_TOKEN_MOST = 16;
/** A streamed piece up to this long is one token to every tokenizer in wide use; longer pieces carry several. */
const BYTES_OF_ONE_TOKEN = 12;

/** Estimates the prompt of a request. `imageTokensMax` is the model's bound of tokens for one image. */
export function estimatePrompt(request: ChatCompletionRequest, imageTokensMax: number): PromptEstimate {
  let bytes = 0;
  const { images, toolCalls, opaqueBytes } = visitPrompt(request, (text) => {
    bytes += Buffer.byteLength(text);
  });
  const messages = request.messages.length + (request.instructions === undefined ? 0 : 1);
  const tools = request.tools?.length ?? 0;
  const imageTokens = images * imageTokensMax;
  const likelyBesideText =
    messages * TEMPLATE_TOKENS_A_MESSAGE_LIKELY +
    (tools + toolCalls) * TEMPLATE_TOKENS_A_TOOL_LIKELY +
    TEMPLATE_TOKENS_A_PROMPT +
    imageTokens;
  return {
    least:
      Math.ceil(bytes / BYTES_A_TOKEN_MOST) +
      messages * TEMPLATE_TOKENS_A_MESSAGE_LEAST +
      (tools + toolCalls) * TEMPLATE_TOKENS_A_TOOL_LEAST +
      // No image is less than one token.
      Math.min(images, imageTokens),
    likely: Math.ceil(bytes / BYTES_A_TOKEN_LIKELY) + likelyBesideText,
    likelyBesideText,
    most:
      bytes +
      opaqueBytes +
      messages * TEMPLATE_TOKENS_A_MESSAGE_MOST +
      (tools + toolCalls) * TEMPLATE_TOKENS_A_TOOL_MOST +
      (tools > 0 ? TEMPLATE_TOKENS_BEFORE_TOOLS_MOST : 0) +
      TEMPLATE_TOKENS_A_PROMPT_MOST +
      imageTokens,
  };
}

/** The texts of a prompt, for a tokenizer. */
export function promptTexts(request: ChatCompletionRequest): string[] {
  const texts: string[] = [];
  visitPrompt(request, (text) => texts.push(text));
  return texts;
}

/** Tokens of a streamed piece of so many bytes, without a tokenizer: for checkpoints, and where no tokenizer can be used. */
export function tokensOfPiece(bytes: number): number {
  if (bytes === 0) return 0;
  return bytes <= BYTES_OF_ONE_TOKEN ? 1 : Math.ceil(bytes / BYTES_A_TOKEN_LIKELY);
}

/** The parts of a prompt that are not text. */
interface OtherParts {
  /** Size of what a provider gave to be handed back, which it may or may not count. */
  opaqueBytes: number;
  images: number;
  toolCalls: number;
}

function visitPrompt(request: ChatCompletionRequest, visit: (text: string) => void): OtherParts {
  const others: OtherParts = { opaqueBytes: 0, images: 0, toolCalls: 0 };
  for (const message of request.messages) visitMessage(message, visit, others);
  if (request.instructions !== undefined) visit(request.instructions);
  if (request.tools !== undefined && request.tools.length > 0) visit(JSON.stringify(request.tools));
  if (request.response_format?.type === "json_schema") visit(JSON.stringify(request.response_format));
  return others;
}

function visitMessage(message: RequestMessage, visit: (text: string) => void, others: OtherParts): void {
  if (typeof message.content === "string") visit(message.content);
  else if (message.content !== undefined) {
    for (const part of message.content) {
      if (part.type === "text") visit(part.text);
      else others.images += 1;
    }
  }
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
