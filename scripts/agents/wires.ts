/** The wires that the scripted upstream speaks: each reads requests and writes the events of an answer. */

/** A call of one of the agent's tools. */
export interface ScriptedCall {
  tool: string;
  arguments: Record<string, unknown>;
}

export interface TokenUsage {
  prompt: number;
  /** Those of the prompt's tokens that were cached. */
  cached: number;
  output: number;
}

/** One answer: a call, or the text in pieces. */
export interface Turn {
  id: string;
  model: string;
  call: ScriptedCall | undefined;
  text: readonly string[];
  usage: TokenUsage;
}

type Json = Record<string, unknown>;

export interface UpstreamWire {
  /** Kind of the provider in the configuration. */
  kind: string;
  /** Names of the tools that a request offers. */
  tools(body: Json): string[];
  /** Ids of the calls of which a request has the results. */
  results(body: Json): (string | undefined)[];
  /** Events of a streamed answer. */
  events(turn: Turn): Json[];
}

const list = (value: unknown) => (Array.isArray(value) ? (value as Json[]) : []);

const chat: UpstreamWire = {
  kind: "openai-compatible",
  tools: (body) => list(body.tools).map((tool) => (tool.function as { name: string }).name),
  results: (body) => list(body.messages).map((message) => message.tool_call_id as string | undefined),
  events({ id, model, call, text, usage }) {
    const called = call && { name: call.tool, arguments: JSON.stringify(call.arguments) };
    const deltas = called
      ? [{ role: "assistant", content: null, tool_calls: [{ index: 0, id, type: "function", function: called }] }]
      : text.map((content, index) => ({ ...(index === 0 && { role: "assistant" }), content }));
    const total = {
      prompt_tokens: usage.prompt,
      completion_tokens: usage.output,
      total_tokens: usage.prompt + usage.output,
      prompt_tokens_details: { cached_tokens: usage.cached },
    };
    const head = { id: `chatcmpl-${id}`, object: "chat.completion.chunk", created: 1_700_000_000, model };
    return [
      ...deltas.map((delta) => ({ ...head, choices: [{ index: 0, delta, finish_reason: null }] })),
      { ...head, choices: [{ index: 0, delta: {}, finish_reason: called ? "tool_calls" : "stop" }] },
      { ...head, choices: [], usage: total },
    ];
  },
};

/** Returns the events of a streamed text completion. */
export function textEvents({ id, model, text, usage }: Turn): Json[] {
  const head = { id: `cmpl-${id}`, object: "text_completion", created: 1_700_000_000, model };
  const total = { prompt_tokens: usage.prompt, completion_tokens: usage.output };
  const choice = (piece: string, finish_reason: string | null = null) => {
    return { ...head, choices: [{ index: 0, text: piece, logprobs: null, finish_reason }] };
  };
  const details = { prompt_tokens_details: { cached_tokens: usage.cached } };
  const counted = { ...total, total_tokens: usage.prompt + usage.output, ...details };
  return [...text.map((piece) => choice(piece)), choice("", "stop"), { ...head, choices: [], usage: counted }];
}

const responses: UpstreamWire = {
  // xAI, because OpenAI is only recognized by its own base URL.
  kind: "xai",
  tools: (body) => list(body.tools).map((tool) => tool.name as string),
  results: (body) => list(body.input).flatMap((item) => (/_output$/.test(`${item.type}`) ? `${item.call_id}` : [])),
  events({ id, model, call, text, usage }) {
    const isCustom = typeof call?.arguments.input === "string";
    const field = isCustom ? "input" : "arguments";
    const value = isCustom ? call?.arguments.input : JSON.stringify(call?.arguments);
    const kind = isCustom ? "custom_tool_call" : "function_call";
    const part = { type: "output_text", text: text.join(""), annotations: [] };
    const item = call
      ? { type: kind, id: `item_${id}`, call_id: id, name: call.tool, [field]: value }
      : { type: "message", id: `item_${id}`, role: "assistant", content: [part] };
    const at = { item_id: `item_${id}`, output_index: 0 };
    const inPart = { ...at, content_index: 0 };
    const done = call ? { [field]: "" } : { content: [] };
    const deltaType = isCustom ? "custom_tool_call_input" : "function_call_arguments";
    const deltas = call
      ? [
          { type: `response.${deltaType}.delta`, ...at, delta: value },
          { type: `response.${deltaType}.done`, ...at, [field]: value },
        ]
      : [
          { type: "response.content_part.added", ...inPart, part: { ...part, text: "" } },
          ...text.map((delta) => ({ type: "response.output_text.delta", ...inPart, delta })),
          { type: "response.output_text.done", ...inPart, text: part.text },
          { type: "response.content_part.done", ...inPart, part },
        ];
    const total = {
      input_tokens: usage.prompt,
      input_tokens_details: { cached_tokens: usage.cached },
      output_tokens: usage.output,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: usage.prompt + usage.output,
    };
    const head = { id: `resp_${id}`, object: "response", created_at: 1_700_000_000, model, error: null };
    const events: Json[] = [
      { type: "response.created", response: { ...head, status: "in_progress", output: [] } },
      { type: "response.output_item.added", output_index: 0, item: { ...item, ...done, status: "in_progress" } },
      ...deltas,
      { type: "response.output_item.done", output_index: 0, item: { ...item, status: "completed" } },
      { type: "response.completed", response: { ...head, status: "completed", output: [item], usage: total } },
    ];
    return events.map((event, index) => ({ ...event, sequence_number: index }));
  },
};

const messages: UpstreamWire = {
  kind: "anthropic",
  tools: (body) => list(body.tools).map((tool) => tool.name as string),
  results: (body) =>
    list(body.messages)
      .flatMap(({ content }) => list(content))
      .map((block) => block.tool_use_id as string | undefined),
  events({ id, model, call, text, usage }) {
    const input = { input_tokens: usage.prompt - usage.cached, cache_read_input_tokens: usage.cached };
    const message = { id: `msg_${id}`, type: "message", role: "assistant", model, content: [], stop_reason: null };
    const block = call ? { type: "tool_use", id, name: call.tool, input: {} } : { type: "text", text: "" };
    const deltas = call
      ? [{ type: "input_json_delta", partial_json: JSON.stringify(call.arguments) }]
      : text.map((piece) => ({ type: "text_delta", text: piece }));
    const stopReason = call ? "tool_use" : "end_turn";
    return [
      { type: "message_start", message: { ...message, usage: { ...input, output_tokens: 1 } } },
      { type: "content_block_start", index: 0, content_block: block },
      ...deltas.map((delta) => ({ type: "content_block_delta", index: 0, delta })),
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: stopReason }, usage: { output_tokens: usage.output } },
      { type: "message_stop" },
    ];
  },
};

export const WIRES = { chat, responses, messages };
