import type { RequestMessage } from "../chat/request.ts";
import { type ProviderState, seal, unseal } from "../provider-state.ts";
import type { InputItem } from "./request.ts";

/** Begins the `encrypted_content` that this service writes; other content is that of an upstream's Responses API. */
const SEALED_PREFIX = "tollgate.";
/** Names OpenAI's encrypted reasoning in `reasoning_details`. */
export const RESPONSES_FORMAT = "openai-responses-v1";

/** Writes provider data as the `encrypted_content` of a reasoning item. */
export function toEncryptedContent(state: ProviderState): string {
  return seal(SEALED_PREFIX, state);
}

/** True for an `encrypted_content` that this service wrote, which no upstream can read. */
export function isSealed(encryptedContent: string | undefined): boolean {
  return encryptedContent?.startsWith(SEALED_PREFIX) === true;
}

/** The reasoning of an assistant message, and the `extra_content` of its calls. */
export interface ReadReasoning extends Pick<RequestMessage, "reasoning_content" | "reasoning_details"> {
  calls?: Record<string, unknown>;
}

/** Reads a reasoning item; undefined if its `encrypted_content` was changed. */
export function readReasoning(item: Extract<InputItem, { type: "reasoning" }>): ReadReasoning | undefined {
  const { id, summary = [], content = [], encrypted_content: encrypted } = item;
  const text = [...content, ...summary].map((part) => part.text).join("\n\n");
  const shown = text === "" ? {} : { reasoning_content: text };
  if (encrypted === undefined) return shown;
  if (isSealed(encrypted)) {
    const sealed = unseal(SEALED_PREFIX, encrypted);
    return sealed && { ...shown, reasoning_details: sealed.details, calls: sealed.calls };
  }
  const common = { format: RESPONSES_FORMAT, ...(id !== undefined && { id }) };
  const summaries = summary.map((part) => ({ type: "reasoning.summary" as const, ...common, summary: part.text }));
  return { reasoning_details: [...summaries, { type: "reasoning.encrypted", ...common, data: encrypted }] };
}
