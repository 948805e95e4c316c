import { countOf, formatDuration, formatExactCredits, formatSpeed } from "../../format/numbers.ts";
import type { Figures } from "./conversation.ts";

/** What an answer took, in one line. */
export function figuresInWords(
  { model, firstMs, durationMs, usage, finishReason }: Figures,
  isStopped: boolean,
): string {
  const parts = [model];
  if (usage !== null) {
    parts.push(`${countOf(usage.prompt_tokens, "token")} in, ${countOf(usage.completion_tokens, "token")} out`);
    if (usage.cost !== undefined) parts.push(`${formatExactCredits(usage.cost)} credits`);
  }
  if (firstMs !== null) {
    parts.push(`first token after ${formatDuration(firstMs)}`);
    if (usage !== null) parts.push(formatSpeed(usage.completion_tokens, durationMs - firstMs));
  }
  if (isStopped) parts.push("Stopped: tokens generated so far are charged");
  if (finishReason === "length") parts.push("Stopped at max tokens");
  return parts.join(" · ");
}
