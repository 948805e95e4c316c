import type { Model } from "../../../../src/api/model.ts";
import { formatCount } from "../../format/numbers.ts";
import type { CallBody } from "../../snippets/snippets.ts";

/** Settings of the next request. */
export interface Settings {
  model: string;
  instructions: string;
  /** Null for the default of the model. */
  temperature: number | null;
  /** Text of the field; empty for no explicit maximum. */
  maxTokens: string;
}

export const FIRST_SETTINGS: Settings = { model: "", instructions: "", temperature: null, maxTokens: "" };

/** Returns the ID of the model with the lowest prices; one of the sandbox only if there is no other. */
export function cheapestModel(models: readonly Model[]): string | undefined {
  const priceOf = ({ pricing_details: { input, output } }: Model) => input + output;
  const isSandbox = ({ category }: Model) => Number(category === "sandbox");
  return models.toSorted((a, b) => isSandbox(a) - isSandbox(b) || priceOf(a) - priceOf(b))[0]?.id;
}

/** Returns the maximum of `max_tokens` for a model. `setting` is the maximum of the service, or null. */
export function maxTokensBound(setting: number | null, model: Pick<Model, "max_output_tokens">): number {
  return Math.min(setting ?? model.max_output_tokens, model.max_output_tokens);
}

/** Reads a whole number, in which commas can only group thousands; NaN for another text. */
function countIn(text: string): number {
  return /^\d+$|^\d{1,3}(,\d{3})+$/.test(text) ? Number(text.replaceAll(",", "")) : Number.NaN;
}

/** Returns the error of the `max_tokens` field; null if it is valid. `bound` is null while it is unknown. */
export function maxTokensError(text: string, bound: number | null): string | null {
  const count = countIn(text);
  const isRight = text === "" || (count >= 1 && (bound === null || count <= bound));
  const range = bound === null ? "from 1" : `from 1 to ${formatCount(bound)}`;
  return isRight ? null : `Enter a whole number ${range}, or leave blank.`;
}

export function bodyOf(settings: Settings, messages: CallBody["messages"]): CallBody {
  const { model, instructions, temperature, maxTokens } = settings;
  return {
    model,
    messages,
    ...(instructions.trim() !== "" && { instructions }),
    ...(temperature !== null && { temperature }),
    ...(maxTokens !== "" && { max_tokens: countIn(maxTokens) }),
  };
}
