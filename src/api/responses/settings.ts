import type { ResponsesRequest } from "./request.ts";
import type { ResponseSettings } from "./response.ts";

/** Returns the settings that a response repeats. */
export function settingsOf(asked: ResponsesRequest, isStored: boolean): ResponseSettings {
  const { reasoning, text, user, tools = [] } = asked;
  return {
    instructions: asked.instructions ?? null,
    max_output_tokens: asked.max_output_tokens ?? null,
    max_tool_calls: asked.max_tool_calls ?? null,
    metadata: asked.metadata ?? {},
    parallel_tool_calls: asked.parallel_tool_calls ?? true,
    previous_response_id: asked.previous_response_id ?? null,
    prompt_cache_key: asked.prompt_cache_key ?? null,
    reasoning: {
      effort: reasoning?.effort ?? null,
      summary: reasoning?.summary ?? reasoning?.generate_summary ?? null,
    },
    safety_identifier: asked.safety_identifier ?? null,
    service_tier: "default",
    store: isStored,
    temperature: asked.temperature ?? null,
    text: { format: { type: "text" }, ...text },
    tool_choice: asked.tool_choice ?? "auto",
    tools: tools.map((tool) => (tool.type === "function" ? { parameters: null, strict: null, ...tool } : tool)),
    top_logprobs: asked.top_logprobs ?? 0,
    top_p: asked.top_p ?? null,
    truncation: asked.truncation ?? "disabled",
    user: user ?? null,
  };
}
