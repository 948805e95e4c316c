import { openAiCompatible } from "./known-provider.ts";

export const deepseek = openAiCompatible({
  id: "deepseek",
  name: "DeepSeek",
  keyVariable: "DEEPSEEK_API_KEY",
  baseUrl: "https://api.deepseek.com",
  documentation: "https://api-docs.deepseek.com/api/create-chat-completion",
  // "text" and "json_object" are the types of an answer.
  refuses: ["response_format.json_schema"],
  dialect: { withoutReasoning: { thinking: { type: "disabled" } } },
  remarks: ["While it thinks, `reasoning_content` has to come back with the results of tool calls."],
});
