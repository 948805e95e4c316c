import type OpenAI from "openai";

/** Types of OpenAI's own client; `contract-checks.ts` generates JSON schemas from them. */
export type Completion = OpenAI.Chat.Completions.ChatCompletion;
export type Chunk = OpenAI.Chat.Completions.ChatCompletionChunk;
export type ListedModel = OpenAI.Models.Model;
export type WholeResponse = OpenAI.Responses.Response;
export type StreamedEvent = OpenAI.Responses.ResponseStreamEvent;
export type Embeddings = OpenAI.Embeddings.CreateEmbeddingResponse;
export interface ErrorEnvelope {
  error: OpenAI.ErrorObject;
}
