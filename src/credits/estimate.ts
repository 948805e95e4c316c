import type { ChatCompletionRequest, RequestMessage } from "../contract/request.ts";

/**
 * How many tokens a prompt may have, without a tokenizer: nothing is tokenized on the event loop.
 * A byte-level tokenizer never makes more tokens than there are bytes, so `most` bounds what any upstream can report
 * (with room for the marks that chat templates put around a message). `likely` is the usual four bytes a token and
 * stands in where an upstream reports no usage. `least` is what even a tokenizer of very long tokens needs.
 */
export interface PromptEstimate {
  least: number;
  likely: number;
  most: number;
}

const TEMPLATE_TOKENS_A_MESSAGE_MOST = 8;
const TEMPLATE_TOKENS_A_MESSAGE_LIKELY = 4;
const TEMPLATE_TOKENS_A_PROMPT = 3;
const TEMPLATE_TOKENS_A_TOOL_MOST = 16;
const BYTES_A_TOKEN_LIKELY = 4;
const BYTES_A_TOKEN_MOST = 16;
/** A streamed piece up to this long is one token to every tokenizer in wide use; longer pieces carry several. */
const BYTES_OF_ONE_TOKEN = 12;

/** Estimates the prompt of a request. `imageTokensMax` is the model's bound of tokens for one image. */
export function estimatePrompt(request: ChatCompletionRequest, imageTokensMax: number): PromptEstimate {
  const seen = { bytes: 0, images: 0 };
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
    least: Math.ceil(seen.bytes / BYTES_A_TOKEN_MOST),
    likely:
      Math.ceil(seen.bytes / BYTES_A_TOKEN_LIKELY) +
      messages * TEMPLATE_TOKENS_A_MESSAGE_LIKELY +
      TEMPLATE_TOKENS_A_PROMPT +
      imageTokens,
    most:
      seen.bytes +
      messages * TEMPLATE_TOKENS_A_MESSAGE_MOST +
      tools * TEMPLATE_TOKENS_A_TOOL_MOST +
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

function addMessage(message: RequestMessage, seen: { bytes: number; images: number }): void {
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
    seen.bytes += Buffer.byteLength(call.id) + Buffer.byteLength(call.function.name);
    seen.bytes += Buffer.byteLength(call.function.arguments);
  }
}
