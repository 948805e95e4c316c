import { type Behaviour, breaking, sendJson } from "../support/upstream.ts";

type Delta = Record<string, unknown>;
export const USAGE = {
  prompt_tokens: 40,
  completion_tokens: 12,
  total_tokens: 52,
  prompt_tokens_details: { cached_tokens: 8 },
  completion_tokens_details: { reasoning_tokens: 5 },
};

/** Answers with deltas, as one message if the request is not streamed. */
export const scripted =
  (deltas: Delta[], reason = "stop", logprobs?: object): Behaviour =>
  ({ body, response }) => {
    const more = logprobs && { logprobs };
    if (body.stream !== true) {
      const message = { role: "assistant", content: null, ...Object.assign({}, ...deltas) };
      sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: reason, ...more }], usage: USAGE });
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (delta: Delta, finish_reason: string | null = null) =>
      response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason, ...more }] })}\n\n`);
    for (const delta of deltas) event(delta);
    event({}, reason);
    response.end(`data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`);
  };

export const callOf = (name: string, text: string, index = 0) => {
  const called = { name, arguments: text };
  return { tool_calls: [{ index, id: `call_${name}`, type: "function", function: called }] };
};
const LOGPROBS = { content: [{ token: "Hi", logprob: -0.5, bytes: [72, 105], top_logprobs: [] }], refusal: null };
const CITATION = {
  type: "url_citation",
  url_citation: { url: "https://a.example.com", title: "A", start_index: 0, end_index: 2 },
};
/** Every kind of answer, by the upstream's name of the model. */
export const SCRIPTED_ANSWERS: Record<string, Behaviour> = {
  text: scripted([{ content: "Hello to you." }]),
  thinking: scripted([{ reasoning_content: "They greet." }, { content: "Hello." }]),
  calling: scripted([callOf("get_weather", '{"location":"Bern"}')], "tool_calls"),
  custom: scripted([callOf("patch", '{"input":"+ x"}')], "tool_calls"),
  cut: scripted([{ content: "Too lo" }], "length"),
  filtered: scripted([{ refusal: "I cannot say." }], "content_filter"),
  empty: scripted([]),
  probable: scripted([{ content: "Hi" }], "stop", LOGPROBS),
  citing: scripted([{ content: "As A says." }, { annotations: [CITATION] }]),
  searching: scripted([callOf("tool_search", '{"query":"weather"}')], "tool_calls"),
  breaking,
};
