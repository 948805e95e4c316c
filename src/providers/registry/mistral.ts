import { ownWire } from "./known-provider.ts";

export const mistral = ownWire({
  id: "mistral",
  name: "Mistral",
  keyVariable: "MISTRAL_API_KEY",
  baseUrl: "https://api.mistral.ai/v1",
  documentation: "https://docs.mistral.ai/api/endpoint/chat",
  refuses: ["logit_bias", "logprobs", "top_logprobs", "user"],
  compatible: { lacks: [], refuses: ["logit_bias", "logprobs", "seed", "top_logprobs", "user"] },
});
