import type { ReasoningDetail } from "../chat/request.ts";
import { type ProviderState, seal, unseal } from "../provider-state.ts";
import type { BlockOf } from "./request.ts";

/** Format of Claude's own thinking, which is the form of this wire. */
export const CLAUDE_FORMAT = "anthropic-claude-v1";
/** Marks the state of another model, which the wire's blocks carry as opaque text so that clients send it back. */
const STATE_PREFIX = "tollgate:";

export type ReasoningBlock = BlockOf<"thinking"> | BlockOf<"redacted_thinking">;

/** Returns the content block of a block of reasoning. */
export function toReasoningBlock(detail: ReasoningDetail): ReasoningBlock {
  const { text, summary, ...state } = detail;
  if (detail.format === CLAUDE_FORMAT) {
    if (detail.type === "reasoning.encrypted") return { type: "redacted_thinking", data: detail.data ?? "" };
    return { type: "thinking", thinking: text ?? summary ?? "", signature: detail.signature ?? "" };
  }
  if (detail.type === "reasoning.encrypted")
    return { type: "redacted_thinking", data: seal(STATE_PREFIX, { details: [detail] }) };
  return { type: "thinking", thinking: text ?? summary ?? "", signature: seal(STATE_PREFIX, { details: [state] }) };
}

/** Returns the content block that carries the provider data of a tool call. */
export function toCallStateBlock(callId: string, extraContent: unknown): ReasoningBlock {
  return { type: "redacted_thinking", data: seal(STATE_PREFIX, { calls: { [callId]: extraContent } }) };
}

/** Reads the provider data of a block of reasoning: reasoning, or the data of tool calls. Undefined for unsigned text. */
export function stateOf(block: ReasoningBlock): ProviderState | undefined {
  const opaque = opaqueOf(block);
  if (opaque === "") return undefined;
  const state = unseal(STATE_PREFIX, opaque);
  if (state === undefined) return { details: [claudeDetail(block)] };
  const [detail] = state.details ?? [];
  if (detail === undefined || block.type === "redacted_thinking") return state;
  // The signatures of this service have one. A forged one could otherwise stand for any number of copies of a long text.
  return {
    ...state,
    details: [{ ...detail, [detail.type === "reasoning.summary" ? "summary" : "text"]: block.thinking }],
  };
}

/** True for thinking that Claude can read: that of other models has no signature, or their own state. */
export function isClaudes(block: ReasoningBlock): boolean {
  const opaque = opaqueOf(block);
  return opaque !== "" && unseal(STATE_PREFIX, opaque) === undefined;
}

function claudeDetail(block: ReasoningBlock): ReasoningDetail {
  if (block.type === "redacted_thinking") {
    return { type: "reasoning.encrypted", format: CLAUDE_FORMAT, data: block.data };
  }
  const { thinking: text, signature = "" } = block;
  return { type: "reasoning.text", format: CLAUDE_FORMAT, text, signature };
}

function opaqueOf(block: ReasoningBlock): string {
  return block.type === "redacted_thinking" ? block.data : (block.signature ?? "");
}
