import { ownWire } from "./known-provider.ts";

export const anthropic = ownWire({
  id: "anthropic",
  name: "Anthropic",
  keyVariable: "ANTHROPIC_API_KEY",
  baseUrl: "https://api.anthropic.com/v1",
  documentation: "https://platform.claude.com/docs/en/api/messages",
  // Prompts are cached only where a request marks what to cache.
  lacks: ["prompt_caching"],
  refuses: [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "presence_penalty",
    "response_format.json_object",
    "seed",
    "top_logprobs",
  ],
  remarks: [
    "Prompts are not cached.",
    "All system messages go first.",
    "On models before Claude 4.6, `reasoning_effort` takes its share of `max_tokens`, at least 1,024 tokens; where that is too much it is left out.",
  ],
  compatible: {
    lacks: ["structured_output", "prompt_caching"],
    refuses: [
      "frequency_penalty",
      "logit_bias",
      "logprobs",
      "presence_penalty",
      "reasoning_effort",
      "seed",
      "top_logprobs",
      "user",
    ],
  },
});
