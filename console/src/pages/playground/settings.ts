import type { Model } from "../../../../src/api/model.ts";
import type { CallBody } from "../../snippets/snippets.ts";

/** How the next answer is asked for. */
export interface Settings {
  model: string;
  instructions: string;
  /** Null: the model's own. */
  temperature: number | null;
  /** As typed; empty: as many as the service, the model and the credits allow. */
  maxTokens: string;
}

export const FIRST_SETTINGS: Settings = { model: "", instructions: "", temperature: null, maxTokens: "" };

/** The highest `max_tokens` that the service takes for a model; `setting` is null where each model's own maximum holds. */
export function maxTokensBound(setting: number | null, model: Pick<Model, "max_output_tokens">): number {
  return Math.min(setting ?? model.max_output_tokens, model.max_output_tokens);
}

/** Error message for a `max_tokens` as typed; null when it is valid. `bound` is null while it is not known. */
export function maxTokensError(text: string, bound: number | null): string | null {
  const isRight = text === "" || (/^\d+$/.test(text) && Number(text) >= 1 && (bound === null || Number(text) <= bound));
  const range = bound === null ? "from 1" : `from 1 to ${bound}`;
  return isRight ? null : `Enter a whole number ${range}, or leave blank.`;
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
