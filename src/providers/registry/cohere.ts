import { ownWire } from "./known-provider.ts";

export const cohere = ownWire({
  id: "cohere",
  name: "Cohere",
  keyVariable: "COHERE_API_KEY",
  baseUrl: "https://api.cohere.com/v2",
  documentation: "https://docs.cohere.com/reference/chat",
  refuses: ["logit_bias", "logprobs", "parallel_tool_calls", "top_logprobs", "user"],
  remarks: ["Text beside tool calls does not go back; it is named as `messages.content` in `x-tollgate-ignored`."],
  compatible: { lacks: [], refuses: ["logit_bias", "parallel_tool_calls", "top_logprobs", "user"] },
});
