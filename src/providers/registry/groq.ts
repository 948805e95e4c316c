import { openAiCompatible } from "./known-provider.ts";

export const groq = openAiCompatible({
  id: "groq",
  name: "Groq",
  keyVariable: "GROQ_API_KEY",
  baseUrl: "https://api.groq.com/openai/v1",
  documentation: "https://console.groq.com/docs/openai",
  // "will result in a 400 error (yikes) if they are supplied"; so do fields of messages that it does not know.
  refuses: ["logit_bias", "logprobs", "top_logprobs"],
  dialect: {
    maxTokens: "max_completion_tokens",
    takesNames: false,
    takesRefusals: false,
    reasoning: "reasoning",
    takesExtraContent: false,
  },
});
