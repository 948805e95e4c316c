import type { ChatCompletionRequest, RequestMessage } from "../contract/request.ts";

/**
 * Bounds of the tokens of a prompt, without a tokenizer: nothing is tokenized on the event loop.
 * `most` bounds what any upstream can report, because a byte-level tokenizer never makes more tokens than there are
 * bytes; it has room for the marks that chat templates put around a message. `likely` is the usual four bytes a token
 * and stands in where an upstream reports no usage. `least` is what even a tokenizer of very long tokens needs, with the
 * marks of the shortest chat template; only text that is mostly long runs of one character, of which some tokenizers
 * make single tokens, could need less.
 */
export interface PromptEstimate {
  least: number;
  likely: number;
  most: number;
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
  const seen: Seen = { bytes: 0, opaqueBytes: 0, images: 0, toolCalls: 0 };
  for (const message of request.messages) addMessage(message, seen);
  let messages = request.messages.length;
  if (request.instructions !== undefined) {
    seen.bytes += Buffer.byteLength(request.instructions);
    messages += 1;
  }
  const tools = request.tools?.length ?? 0;
  if (tools > 0) seen.bytes += Buffer.byteLength(JSON.stringify(request.tools));
  if (request.response_format?.type === "json_schema") {
    seen.bytes += Buffer.byteLength(JSON.stringify(request.response_format));
  }
  const imageTokens = seen.images * imageTokensMax;
  return {
    least:
      Math.ceil(seen.bytes / BYTES_A_TOKEN_MOST) +
      messages * TEMPLATE_TOKENS_A_MESSAGE_LEAST +
      (tools + seen.toolCalls) * TEMPLATE_TOKENS_A_TOOL_LEAST +
      // No image is less than one token.
      Math.min(seen.images, imageTokens),
    likely:
      Math.ceil(seen.bytes / BYTES_A_TOKEN_LIKELY) +
      messages * TEMPLATE_TOKENS_A_MESSAGE_LIKELY +
      (tools + seen.toolCalls) * TEMPLATE_TOKENS_A_TOOL_LIKELY +
      TEMPLATE_TOKENS_A_PROMPT +
      imageTokens,
    most:
      seen.bytes +
      seen.opaqueBytes +
      messages * TEMPLATE_TOKENS_A_MESSAGE_MOST +
      (tools + seen.toolCalls) * TEMPLATE_TOKENS_A_TOOL_MOST +
      (tools > 0 ? TEMPLATE_TOKENS_BEFORE_TOOLS_MOST : 0) +
      TEMPLATE_TOKENS_A_PROMPT +
      imageTokens,
  };
}

/** Tokens of one piece of produced text, counted as it passes: what stands in where an upstream reports no usage. */
export function countPiece(text: string): number {
  const bytes = Buffer.byteLength(text);
  if (bytes === 0) return 0;
  return bytes <= BYTES_OF_ONE_TOKEN ? 1 : Math.ceil(bytes / BYTES_A_TOKEN_LIKELY);
}

interface Seen {
  bytes: number;
  /** Of what a provider gave to be handed back, which it may or may not count. */
  opaqueBytes: number;
  images: number;
  toolCalls: number;
}

function addMessage(message: RequestMessage, seen: Seen): void {
  if (typeof message.content === "string") seen.bytes += Buffer.byteLength(message.content);
  else if (message.content !== undefined) {
    for (const part of message.content) {
      if (part.type === "text") seen.bytes += Buffer.byteLength(part.text);
      else seen.images += 1;
    }
  }
  for (const text of [message.name, message.reasoning_content, message.refusal, message.tool_call_id]) {
    if (text !== undefined) seen.bytes += Buffer.byteLength(text);
  }
  for (const call of message.tool_calls ?? []) {
    seen.toolCalls += 1;
    if (call.extra_content !== undefined) seen.opaqueBytes += Buffer.byteLength(JSON.stringify(call.extra_content));
    seen.bytes += Buffer.byteLength(call.id) + Buffer.byteLength(call.function.name);
    seen.bytes += Buffer.byteLength(call.function.arguments);
  }
}
