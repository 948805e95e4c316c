import type { RequestMessage, Tool } from "../../api/request.ts";
import type { UpstreamRequest } from "../provider.ts";
import { lastUserText } from "./messages.ts";

/** A name that stands in a text, as OpenAI allows names of functions. */
const NAME = /[\w.-]{1,64}/g;

/**
 * Chooses the tool that the sandbox calls, if any. After a tool's result it answers with text, so that every agent's
 * loop ends. Otherwise `tool_choice` rules: a named tool is called; with "required" or "auto", or without a choice, the
 * first tool whose name stands in the last user message, else the first of all; with "none" no tool is.
 */
export function calledTool({ messages, tools, tool_choice }: UpstreamRequest): Tool | undefined {
  if (tools === undefined || tool_choice === "none" || messages.at(-1)?.role === "tool") return undefined;
  if (typeof tool_choice === "object") {
    return tools.find((tool) => tool.function.name === tool_choice.function.name) ?? tools[0];
  }
  // The text is read once, not once for each tool.
  const names = new Set(lastUserText(messages).match(NAME)?.flatMap(spellingsOf));
  return tools.find((tool) => names.has(tool.function.name)) ?? tools[0];
}

/** A name with and without the punctuation of the sentence that it stands in. */
function spellingsOf(name: string): string[] {
  return [name, name.replace(/^[.-]{1,64}/, "").replace(/[.-]{1,64}$/, "")];
}

/** The id of the next tool call: they are numbered through a conversation. */
export function callId(messages: readonly RequestMessage[]): string {
  const calls = messages.reduce((count, message) => count + (message.tool_calls?.length ?? 0), 0);
  return `call_sandbox_${calls + 1}`;
}
