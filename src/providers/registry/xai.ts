import { ownWire } from "./known-provider.ts";

export const xai = ownWire({
  id: "xai",
  name: "xAI",
  keyVariable: "XAI_API_KEY",
  baseUrl: "https://api.x.ai/v1",
  pricesId: "x-ai",
  documentation: "https://docs.x.ai/docs/api-reference#create-new-response",
  refuses: ["frequency_penalty", "logit_bias", "logprobs", "presence_penalty", "stop", "top_logprobs"],
  remarks: ["It is asked to keep nothing: its reasoning comes sealed and goes back with the next turn."],
  compatible: { lacks: [], refuses: ["logit_bias"] },
});
