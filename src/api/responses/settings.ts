import type { ResponsesRequest } from "./request.ts";
import type { ResponseSettings } from "./response.ts";

/** OpenAI's defaults: clients of Open Responses expect numbers, whatever the upstream's own defaults are. */
const DEFAULT_TEMPERATURE = 1;
const DEFAULT_TOP_P = 1;

/** Returns the settings that a response repeats. */
export function settingsOf(asked: ResponsesRequest, isStored: boolean): ResponseSettings {
  const { reasoning, text, user, tools = [] } = asked;
  return {
    access_programs: null,
    frequency_penalty: 0,
    instructions: asked.instructions ?? null,
    max_output_tokens: asked.max_output_tokens ?? null,
    max_tool_calls: asked.max_tool_calls ?? null,
    metadata: asked.metadata ?? {},
    parallel_tool_calls: asked.parallel_tool_calls ?? true,
    presence_penalty: 0,
    previous_response_id: asked.previous_response_id ?? null,
    prompt_cache_key: asked.prompt_cache_key ?? null,
    reasoning: {
      effort: reasoning?.effort ?? null,
      summary: reasoning?.summary ?? reasoning?.generate_summary ?? null,
    },
    safety_identifier: asked.safety_identifier ?? null,
    service_tier: "default",
    store: isStored,
    temperature: asked.temperature ?? DEFAULT_TEMPERATURE,
    text: { format: { type: "text" }, ...text },
    tool_choice: asked.tool_choice ?? "auto",
    tools: tools.map((tool) =>
      tool.type === "function" ? { description: null, parameters: null, strict: null, ...tool } : tool,
    ),
    top_logprobs: asked.top_logprobs ?? 0,
    top_p: asked.top_p ?? DEFAULT_TOP_P,
    truncation: asked.truncation ?? "disabled",
    ...(user !== undefined && { user }),
  };
}
