import { openAiCompatible } from "../known-provider.ts";

export const openrouter = openAiCompatible({
  id: "openrouter",
  name: "OpenRouter",
  keyVariable: "OPENROUTER_API_KEY",
  baseUrl: "https://openrouter.ai/api/v1",
  documentation: "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens",
  dialect: { reasoning: "reasoning" },
  remarks: ["`reasoning` goes both ways; `reasoning_details`, which some makers want back, does not."],
});
