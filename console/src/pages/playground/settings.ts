import type { CallBody } from "../../snippets/snippets.ts";

export const MAX_TOKENS = 4096;

/** How the next answer is asked for. */
export interface Settings {
  model: string;
  instructions: string;
  /** Null: the model's own. */
  temperature: number | null;
  /** As it stands in its field; empty: as many as the model and the credits allow. */
  maxTokens: string;
}

export const FIRST_SETTINGS: Settings = { model: "", instructions: "", temperature: null, maxTokens: "" };

export function maxTokensError(text: string): string | null {
  const isRight = text === "" || (/^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= MAX_TOKENS);
  return isRight ? null : `A whole number from 1 to ${MAX_TOKENS}, or nothing.`;
}

export function bodyOf(settings: Settings, messages: CallBody["messages"]): CallBody {
  const { model, instructions, temperature, maxTokens } = settings;
  return {
    model,
    messages,
    ...(instructions.trim() !== "" && { instructions }),
    ...(temperature !== null && { temperature }),
    ...(maxTokens !== "" && { max_tokens: Number(maxTokens) }),
  };
}
