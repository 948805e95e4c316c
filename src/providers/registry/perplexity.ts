import { openAiCompatible } from "./known-provider.ts";

export const perplexity = openAiCompatible({
  id: "perplexity",
  name: "Perplexity",
  keyVariable: "PERPLEXITY_API_KEY",
  baseUrl: "https://api.perplexity.ai",
  documentation: "https://docs.perplexity.ai/api-reference/chat-completions-post",
  lacks: ["tools"],
  dialect: { reasoning: null },
  runsTools: true,
  countsReasoningBeside: true,
  remarks: [
    "It charges for each search beside the tokens, which a price by tokens cannot tell: its models are offered where `models` states a price that covers it.",
    "`sonar-reasoning-pro` thinks inside `content`, between `<think>` and `</think>`.",
  ],
});
