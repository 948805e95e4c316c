import { type Fit, KEYED, optionsOf, REASONING_SHARES, USUAL_PROMPT, type Wire } from "../wire.ts";

/** Cohere's chat, version 2: https://docs.cohere.com/reference/chat */
export const cohere: Wire = {
  packages: ["@ai-sdk/cohere"],
  ...KEYED,
  connect: (settings) => async (fetch) => {
    const { createCohere } = await import("@ai-sdk/cohere");
    return createCohere(optionsOf(settings, fetch));
  },
  embedding: {
    // A text that is too long is refused, as on every other wire, instead of being cut.
    options: (dimensions) => ({
      cohere: {
        ...{ inputType: "search_document", truncate: "NONE" },
        ...(dimensions !== undefined && { outputDimension: dimensions }),
      },
    }),
  },
  takes: [],
  fields: { top_k: "translated" },
  fit({ reasoning_effort: effort, max_tokens: maxTokens }): Fit {
    if (effort === undefined || effort === "none") return { options: {} };
    // Cohere does not document whether its output limit includes thinking. Splitting `max_tokens` keeps the sum within it.
    const tokenBudget = Math.max(1, Math.floor(maxTokens * REASONING_SHARES[effort]));
    const options = { reasoning: "provider-default" as const, maxOutputTokens: Math.max(1, maxTokens - tokenBudget) };
    return { options: { ...options, providerOptions: { cohere: { thinking: { type: "enabled", tokenBudget } } } } };
  },
  prompt: { ...USUAL_PROMPT, takesTextWithCalls: false, imageDetail: (detail) => ({ cohere: { detail } }) },
  metadataKey: "cohere",
  reasoningFields: [],
};
