import { type Static, Type } from "typebox";
import { ReasoningDetail, type RequestMessage } from "../chat/request.ts";
import { unwrapped, wrapped } from "../json.ts";
import { compileCheck } from "../validation.ts";
import type { InputItem } from "./request.ts";

/** Begins the `encrypted_content` that this service writes; other content is that of an upstream's Responses API. */
const SEALED_PREFIX = "tollgate.";
const RESPONSES_FORMAT = "openai-responses-v1";

/** Data that providers want back with the next request, which items of this wire have no fields for. */
const SealedReasoning = Type.Object({
  details: Type.Optional(Type.Array(ReasoningDetail)),
  /** `extra_content` of tool calls, by the id of the call. */
  calls: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});
export type SealedReasoning = Static<typeof SealedReasoning>;
const checkSealed = compileCheck(SealedReasoning);

/** Writes provider data as the `encrypted_content` of a reasoning item. */
export function seal(data: SealedReasoning): string {
  return wrapped(SEALED_PREFIX, data);
}

/** True for an `encrypted_content` that this service wrote, which no upstream can read. */
export function isSealed(encryptedContent: string | undefined): boolean {
  return encryptedContent?.startsWith(SEALED_PREFIX) === true;
}

/** Reads what `seal` wrote; undefined if it was changed. */
function unseal(encryptedContent: string): SealedReasoning | undefined {
  const data = unwrapped(SEALED_PREFIX, encryptedContent);
  return checkSealed(data) === undefined ? (data as SealedReasoning) : undefined;
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
    const sealed = unseal(encrypted);
    if (sealed === undefined) return undefined;
    return {
      ...shown,
      ...(sealed.details && { reasoning_details: sealed.details }),
      ...(sealed.calls && { calls: sealed.calls }),
    };
  }
  const common = { format: RESPONSES_FORMAT, ...(id !== undefined && { id }) };
  const summaries = summary.map((part) => ({ type: "reasoning.summary" as const, ...common, summary: part.text }));
  return { reasoning_details: [...summaries, { type: "reasoning.encrypted", ...common, data: encrypted }] };
}
