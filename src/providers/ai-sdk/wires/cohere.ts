import { translating } from "../../fields.ts";
import { type Fit, keyed, REASONING_SHARES, type Wire } from "../wire.ts";

/** Cohere's chat, version 2: https://docs.cohere.com/reference/chat */
export const cohere: Wire = {
  ...keyed("@ai-sdk/cohere", async () => (await import("@ai-sdk/cohere")).createCohere),
  embedding: {
    // A text that is too long is refused, as on every other wire, instead of being cut.
    options: (dimensions) => ({
      cohere: { inputType: "search_document", truncate: "NONE", outputDimension: dimensions },
    }),
  },
  fields: translating("top_k"),
  fit({ reasoning_effort: effort, max_tokens: maxTokens }): Fit {
    if (effort === undefined || effort === "none") return {};
    // Cohere does not document whether its output limit includes thinking. Splitting `max_tokens` keeps the sum within it.
    const tokenBudget = Math.max(1, Math.floor(maxTokens * REASONING_SHARES[effort]));
    const options = { reasoning: "provider-default" as const, maxOutputTokens: Math.max(1, maxTokens - tokenBudget) };
    return { options, own: { thinking: { type: "enabled", tokenBudget } } };
  },
  prompt: { dropsTextWithCalls: true, imageDetail: (detail) => ({ cohere: { detail } }) },
  metadataKey: "cohere",
};
