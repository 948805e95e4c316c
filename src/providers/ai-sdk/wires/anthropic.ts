import { missing, optionsOf, USUAL_PROMPT, type Wire } from "../wire.ts";
import { claudeFit } from "./claude.ts";

/** Anthropic's Messages API: https://platform.claude.com/docs/en/api/messages */
export const anthropic: Wire = {
  package: "@ai-sdk/anthropic",
  keys: ["apiKey", "baseUrl"],
  fault: (settings) => missing(settings, "apiKey"),
  connect: (settings) => async (fetch) => {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    return createAnthropic(optionsOf(settings, fetch));
  },
  takes: ["user", "parallel_tool_calls"],
  fit(request) {
    const { parallel_tool_calls: isParallel, tools, user } = request;
    const { options, budget, ignored } = claudeFit(request, "anthropic");
    const own = {
      ...(user !== undefined && { metadata: { userId: user } }),
      ...(tools !== undefined && isParallel === false && { disableParallelToolUse: true }),
      ...(budget !== undefined && { thinking: { type: "enabled", budgetTokens: budget } }),
    };
    return { options: { ...options, providerOptions: { anthropic: own } }, ignored };
  },
  prompt: { ...USUAL_PROMPT, isSystemFirst: true, takesToolImages: true },
  metadataKey: "anthropic",
  reasoningFields: ["signature", "redactedData"],
  closing: 'data: {"type":"message_stop"}\n\n',
};
