import { openAiCompatible } from "./known-provider.ts";

export const openai = openAiCompatible({
  id: "openai",
  name: "OpenAI",
  keyVariable: "OPENAI_API_KEY",
  baseUrl: "https://api.openai.com/v1",
  documentation: "https://platform.openai.com/docs/api-reference/chat",
  // It refuses fields of messages that others want back.
  dialect: { maxTokens: "max_completion_tokens", takesDeveloper: true, reasoning: null, takesExtraContent: false },
  remarks: ["Models that only the Responses API serves are not offered."],
});
