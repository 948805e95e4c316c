import { openAiCompatible } from "./known-provider.ts";

export const openrouter = openAiCompatible({
  id: "openrouter",
  name: "OpenRouter",
  keyVariable: "OPENROUTER_API_KEY",
  baseUrl: "https://openrouter.ai/api/v1",
  documentation: "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens",
  dialect: { reasoning: "reasoning", takesReasoningDetails: true, takesExtraContent: false },
  remarks: ["`reasoning_details` go both ways, in `extra_content` of the first tool call."],
});
