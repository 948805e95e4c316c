import { type Static, Type } from "typebox";
import { ReasoningDetail } from "../chat/request.ts";
import { unwrapped, wrapped } from "../json.ts";
import { compileCheck } from "../validation.ts";
import type { BlockOf } from "./request.ts";

/** Format of Claude's own thinking, which is the form of this wire. */
export const CLAUDE_FORMAT = "anthropic-claude-v1";
/** Marks the state of another model, which the wire's blocks carry as opaque text so that clients send it back. */
const STATE_PREFIX = "tollgate:";

/** Provider data that belongs to a tool call. */
const ToolCallState = Type.Object({ tool_call_id: Type.String(), extra_content: Type.Unknown() });
const checkDetail = compileCheck(ReasoningDetail);
const checkCallState = compileCheck(ToolCallState);

export type ReasoningBlock = BlockOf<"thinking"> | BlockOf<"redacted_thinking">;

/** Provider data in a block of reasoning: reasoning, or the data of a tool call. Undefined for text without a signature. */
export type ReasoningState = { detail: ReasoningDetail } | { callId: string; extraContent: unknown } | undefined;

/** Returns the content block of a block of reasoning. */
export function toReasoningBlock(detail: ReasoningDetail): ReasoningBlock {
  const { text, summary, ...state } = detail;
  if (detail.format === CLAUDE_FORMAT) {
    if (detail.type === "reasoning.encrypted") return { type: "redacted_thinking", data: detail.data ?? "" };
    return { type: "thinking", thinking: text ?? summary ?? "", signature: detail.signature ?? "" };
  }
  if (detail.type === "reasoning.encrypted") return { type: "redacted_thinking", data: wrapped(STATE_PREFIX, detail) };
  return { type: "thinking", thinking: text ?? summary ?? "", signature: wrapped(STATE_PREFIX, state) };
}

/** Returns the content block that carries the provider data of a tool call. */
export function toCallStateBlock(callId: string, extraContent: unknown): ReasoningBlock {
  return {
    type: "redacted_thinking",
    data: wrapped(STATE_PREFIX, { tool_call_id: callId, extra_content: extraContent }),
  };
}

/** Reads the provider data of a block of reasoning. */
export function stateOf(block: ReasoningBlock): ReasoningState {
  const opaque = opaqueOf(block);
  if (opaque === "") return undefined;
  const state = stateIn(opaque);
  if (state === undefined) return { detail: claudeDetail(block) };
  if (checkCallState(state) === undefined) {
    const { tool_call_id: callId, extra_content: extraContent } = state as Static<typeof ToolCallState>;
    return { callId, extraContent };
  }
  const detail = state as ReasoningDetail;
  if (block.type === "redacted_thinking") return { detail };
  return { detail: { ...detail, [detail.type === "reasoning.summary" ? "summary" : "text"]: block.thinking } };
}

/** True for thinking that Claude can read: that of other models has no signature, or their own state. */
export function isClaudes(block: ReasoningBlock): boolean {
  const opaque = opaqueOf(block);
  return opaque !== "" && stateIn(opaque) === undefined;
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

/** Returns the state in an opaque text; undefined for a text that this service did not make. */
function stateIn(opaque: string): object | undefined {
  const state = unwrapped(STATE_PREFIX, opaque);
  return checkCallState(state) === undefined || checkDetail(state) === undefined ? (state as object) : undefined;
}
