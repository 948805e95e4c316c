import { ownWire } from "./known-provider.ts";

export const bedrock = ownWire({
  id: "bedrock",
  name: "Amazon Bedrock",
  pricesId: "aws",
  documentation: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
  lacks: ["prompt_caching"],
  refuses: [
    "frequency_penalty",
    "image_url.address",
    "logit_bias",
    "logprobs",
    "presence_penalty",
    "response_format.json_object",
    "seed",
    "top_logprobs",
    "user",
  ],
  remarks: [
    "Prompts are not cached.",
    "All system messages go first.",
    "Claude thinks as on Anthropic's own API; Nova's highest effort is `medium`, because above it takes no bound of its answer.",
    "A conversation that holds tool calls needs its tools: where a request offers none, they are offered by their names alone.",
  ],
});
