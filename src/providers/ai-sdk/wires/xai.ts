import { XAI_REASONING } from "../reasoning.ts";
import { KEYED, optionsOf, USUAL_PROMPT, type Wire } from "../wire.ts";

/** xAI's Responses API: https://docs.x.ai/docs/api-reference#create-new-response */
export const xai: Wire = {
  packages: ["@ai-sdk/xai"],
  ...KEYED,
  connect: (settings) => async (fetch) => {
    const { createXai } = await import("@ai-sdk/xai");
    return createXai(optionsOf(settings, fetch));
  },
  takes: ["user", "parallel_tool_calls"],
  fields: {},
  fit({ parallel_tool_calls: isParallel, user }) {
    const own = {
      // xAI stores nothing, so it returns its reasoning encrypted, and the next turn sends it back.
      store: false,
      ...(isParallel !== undefined && { parallelToolCalls: isParallel }),
      ...(user !== undefined && { user }),
    };
    return { options: { providerOptions: { xai: own } } };
  },
  prompt: { ...USUAL_PROMPT, imageDetail: (detail) => ({ xai: { imageDetail: detail } }), takesToolImages: true },
  metadataKey: "xai",
  reasoningFields: ["itemId", "reasoningEncryptedContent"],
  reasoningFormat: XAI_REASONING,
};
