import { LOWERED_EFFORT, translating } from "../../fields.ts";
import { XAI_REASONING } from "../reasoning.ts";
import { keyed, type Wire } from "../wire.ts";

/** xAI's Responses API: https://docs.x.ai/docs/api-reference#create-new-response */
export const xai: Wire = {
  ...keyed("@ai-sdk/xai", async () => (await import("@ai-sdk/xai")).createXai),
  fields: translating("user", "parallel_tool_calls"),
  // xAI stores nothing, so it returns its reasoning encrypted, and the next turn sends it back.
  fit: ({ parallel_tool_calls: parallelToolCalls, user, reasoning_effort: effort }) => ({
    own: { store: false, parallelToolCalls, user },
    ...(effort === "max" && { options: { reasoning: "xhigh" }, ignored: [LOWERED_EFFORT] }),
  }),
  prompt: { imageDetail: (detail) => ({ xai: { imageDetail: detail } }), takesToolImages: true },
  metadataKey: "xai",
  reasoning: XAI_REASONING,
};
