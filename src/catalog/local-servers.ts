import type { Capability } from "../contract/model.ts";

/** A local model server that answered, and what it serves. */
export interface FoundServer extends LocalServer {
  models: readonly FoundModel[];
}

export interface FoundModel {
  /** The server's own name of the model. */
  name: string;
  /** Tokens, where the server tells. */
  contextWindow?: number;
  /** Date of the model's file, YYYY-MM-DD, where the server tells. */
  fileDate?: string;
  /** Where the server tells. */
  can?: readonly Capability[];
}

/** A place to look for a local model server; a provider's identity too. */
export interface LocalServer {
  id: string;
  name: string;
  kind: string;
  baseUrl: string;
}

const local = (id: string, name: string, port: number): LocalServer => ({
  id,
  name,
  kind: "openai-compatible",
  baseUrl: `http://127.0.0.1:${port}/v1`,
});

/** Where local model servers listen unless told otherwise, as each one's documentation says. */
export const LOCAL_SERVERS: readonly LocalServer[] = [
  local("ollama", "Ollama", 11_434),
  local("lmstudio", "LM Studio", 1_234),
  local("llamacpp", "llama.cpp", 8_080),
  local("vllm", "vLLM", 8_000),
];
