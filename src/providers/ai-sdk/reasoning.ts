import type { ReasoningDetail } from "../../api/chat/request.ts";

/** Formats of `reasoning_details`, as OpenRouter names them ("Reasoning Tokens" in its documentation). */
export const CLAUDE_REASONING = "anthropic-claude-v1";
export const GEMINI_REASONING = "google-gemini-v1";
export const XAI_REASONING = "xai-responses-v1";

/** The names under which the packages return encrypted reasoning, by format. */
const ENCRYPTED: Readonly<Record<string, string>> = {
  [CLAUDE_REASONING]: "redactedData",
  [GEMINI_REASONING]: "thoughtSignature",
  [XAI_REASONING]: "reasoningEncryptedContent",
};

/** Returns a complete block of signed reasoning as a detail; undefined if it has nothing that can be sent back. */
export function toDetail(
  format: string | undefined,
  text: string,
  fields: Readonly<Record<string, string>>,
): ReasoningDetail | undefined {
  if (format === undefined) return undefined;
  const { signature, itemId } = fields;
  const id = itemId === undefined ? {} : { id: itemId };
  if (signature !== undefined) return { type: "reasoning.text", format, ...id, text, signature };
  const data = fields[ENCRYPTED[format] ?? ""];
  // Text and encrypted data of one block are one detail, so that they go back together.
  return data === undefined ? undefined : { type: "reasoning.encrypted", format, ...id, ...(text && { text }), data };
}

/** Returns the signature of a call as a detail. */
export function toCallDetail(format: string, id: string, data: string): ReasoningDetail {
  return { type: "reasoning.encrypted", format, id, data };
}

/** Returns the package's fields of a detail of this wire's format; undefined if it is not a block that can be sent back. */
export function fieldsOfDetail(
  detail: ReasoningDetail,
  format: string | undefined,
): Record<string, string> | undefined {
  const { type, signature, data, id } = detail;
  if (format === undefined || isCallSignature(detail, format)) return undefined;
  if (type === "reasoning.text" && signature !== undefined) return { signature };
  const name = ENCRYPTED[format];
  if (type !== "reasoning.encrypted" || data === undefined || name === undefined) return undefined;
  return { [name]: data, ...(format === XAI_REASONING && id !== undefined && { itemId: id }) };
}

/** Tests whether a detail is the signature of a tool call, which Gemini wants back with the call. */
export function isCallSignature(detail: ReasoningDetail, format: string | undefined): boolean {
  return format === GEMINI_REASONING && detail.format === format && detail.id !== undefined;
}
