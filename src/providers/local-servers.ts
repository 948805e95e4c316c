import { passing } from "./fields.ts";
import { type KnownProvider, OPENAI_COMPATIBLE } from "./registry.ts";

/** A model server on this machine, on its default port. `refuses` are the request fields that it ignores. */
export type LocalServer = Pick<KnownProvider, "id" | "name" | "kind" | "requestFormat"> &
  Partial<Pick<KnownProvider, "refuses">> & { baseUrl: string };

/** One row per local model server, as each one's documentation describes it. */
export const LOCAL_SERVERS: readonly LocalServer[] = [
  // https://docs.ollama.com/api/openai-compatibility
  local("ollama", "Ollama", 11_434, {
    refuses: ["logit_bias", "parallel_tool_calls", "user"],
    requestFormat: { reasoningField: "reasoning", fields: passing() },
  }),
  // https://lmstudio.ai/docs/developer/openai-compat/chat-completions
  local("lmstudio", "LM Studio", 1_234, {
    refuses: ["logprobs", "parallel_tool_calls", "top_logprobs", "user"],
    requestFormat: { fields: passing("top_k") },
  }),
  // https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
  local("llamacpp", "llama.cpp", 8_080, {
    requestFormat: { fields: passing("top_k", "min_p", "chat_template_kwargs", "content.input_audio") },
  }),
  // https://docs.vllm.ai/en/stable/features/reasoning_outputs/
  local("vllm", "vLLM", 8_000, {
    requestFormat: {
      reasoningField: "reasoning",
      fields: passing(
        ...(["n", "top_k", "min_p", "repetition_penalty", "chat_template_kwargs"] as const),
        ...(["guided_json", "guided_regex", "guided_choice", "guided_grammar"] as const),
        ...(["content.input_audio", "content.video_url"] as const),
      ),
    },
  }),
];

function local(
  id: string,
  name: string,
  port: number,
  row: Partial<Pick<LocalServer, "refuses" | "requestFormat">> = {},
): LocalServer {
  return { id, name, kind: OPENAI_COMPATIBLE, baseUrl: `http://127.0.0.1:${port}/v1`, ...row };
}
