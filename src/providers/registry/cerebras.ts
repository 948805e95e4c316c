import { openAiCompatible } from "./known-provider.ts";

export const cerebras = openAiCompatible({
  id: "cerebras",
  name: "Cerebras",
  keyVariable: "CEREBRAS_API_KEY",
  baseUrl: "https://api.cerebras.ai/v1",
  documentation: "https://inference-docs.cerebras.ai/resources/openai",
  // "will result in a 400 error".
  refuses: ["frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty"],
  dialect: {
    maxTokens: "max_completion_tokens",
    takesRefusals: false,
    reasoning: "reasoning",
    takesExtraContent: false,
  },
});
