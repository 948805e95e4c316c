import type { RequestMessage } from "../../api/request.ts";
import { countTokens } from "./tokens.ts";

/** The text of the last user message, its text parts line by line; empty where there is none. */
export function lastUserText(messages: readonly RequestMessage[]): string {
  return textOf(messages.findLast((message) => message.role === "user")?.content);
}

/** The tokens of all messages' text. */
export function countPromptTokens(messages: readonly RequestMessage[]): number {
  return messages.reduce((count, message) => count + countTokens(textOf(message.content)), 0);
}

function textOf(content: RequestMessage["content"]): string {
  if (content === undefined) return "";
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? part.text : "")).join("\n");
}
