import type { ReasoningDetail } from "../../api/chat/request.ts";
import { detailsOf, type JsonObject, objectsIn, textOf } from "../../api/json.ts";
import { CLAUDE_FORMAT } from "../../api/messages/reasoning.ts";

/** Reasoning that the next turn must send back unchanged. */
export interface ReasoningForm {
  /** Its `format` in `reasoning_details`, as OpenRouter names it ("Reasoning Tokens" in its documentation). */
  format: string;
  /** The names under which the package returns encrypted reasoning. It is sent back under the first one. */
  encryptedAs: readonly [string, ...string[]];
}

export const CLAUDE_REASONING: ReasoningForm = { format: CLAUDE_FORMAT, encryptedAs: ["redactedData"] };
export const GEMINI_REASONING: ReasoningForm = { format: "google-gemini-v1", encryptedAs: ["thoughtSignature"] };
export const XAI_REASONING: ReasoningForm = {
  format: "xai-responses-v1",
  encryptedAs: ["reasoningEncryptedContent"],
};

/** Returns a complete block of reasoning as a detail; undefined if nothing of it can be sent back. */
export function toDetail(
  { format, encryptedAs }: ReasoningForm,
  text: string,
  fields: JsonObject,
): ReasoningDetail | undefined {
  const id = textOf(fields.itemId);
  const signature = textOf(fields.signature);
  if (signature !== undefined) return { type: "reasoning.text", format, ...(id && { id }), text, signature };
  const data = encryptedAs.map((name) => textOf(fields[name])).find((value) => value !== undefined);
  if (data === undefined) return undefined;
  // Text and encrypted data of one block are one detail, so that they go back together.
  return { type: "reasoning.encrypted", format, ...(id && { id }), ...(text && { text }), data };
}

/** Returns the package's fields of a detail, which may be unchecked; undefined if this wire does not send it back. */
export function fieldsOfDetail(detail: ReasoningDetail, form: ReasoningForm | undefined) {
  if (form === undefined || detail.format !== form.format || isCallSignature(detail, form)) return undefined;
  const [signature, data, id] = [textOf(detail.signature), textOf(detail.data), textOf(detail.id)];
  if (detail.type === "reasoning.text" && signature !== undefined) return { signature };
  if (detail.type !== "reasoning.encrypted" || data === undefined) return undefined;
  return { [form.encryptedAs[0]]: data, ...(form === XAI_REASONING && id !== undefined && { itemId: id }) };
}

/** Tests whether a detail is the signature of a tool call, which Gemini wants back with the call. */
export function isCallSignature(detail: ReasoningDetail, form: ReasoningForm | undefined): boolean {
  return form === GEMINI_REASONING && detail.format === form.format && detail.id !== undefined;
}

/** Returns the `extra_content` of a tool call in Google's form, for clients that send back only the calls. */
export function toExtraContent(signature: string | undefined, details: readonly ReasoningDetail[]) {
  if (signature === undefined && details.length === 0) return undefined;
  return {
    ...(signature !== undefined && { google: { thought_signature: signature } }),
    ...(details.length > 0 && { reasoning_details: details }),
  };
}

/** Reads what `toExtraContent` wrote, as a caller sent it back: the details are unchecked. */
export function readExtraContent(extra: unknown): { signature: string | undefined; details: ReasoningDetail[] } {
  const { google, reasoning_details: details } = detailsOf(extra);
  return {
    signature: textOf(detailsOf(google).thought_signature),
    details: objectsIn(details) as unknown as ReasoningDetail[],
  };
}
