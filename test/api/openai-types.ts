import type OpenAI from "openai";

/** The answers of OpenAI's API as its own client types them; `openai-schemas.ts` makes JSON schemas of these. */
export type Completion = OpenAI.Chat.Completions.ChatCompletion;
export type Chunk = OpenAI.Chat.Completions.ChatCompletionChunk;
export type ListedModel = OpenAI.Models.Model;
