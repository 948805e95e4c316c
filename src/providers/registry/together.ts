import { openAiCompatible } from "./known-provider.ts";

export const together = openAiCompatible({
  id: "together",
  name: "Together",
  keyVariable: "TOGETHER_API_KEY",
  baseUrl: "https://api.together.xyz/v1",
  documentation: "https://docs.together.ai/reference/chat-completions",
  dialect: { reasoning: "reasoning" },
});
