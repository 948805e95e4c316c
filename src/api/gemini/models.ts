import { type Static, Type } from "typebox";
import type { Model } from "../model.ts";
import { OptionalText } from "../schema.ts";
import { invalid, refuse } from "../validation.ts";

export const GeminiModel = Type.Object({
  name: Type.String({ description: "`models/` and the model's id." }),
  version: Type.String(),
  displayName: Type.String(),
  description: Type.String(),
  inputTokenLimit: Type.Integer({ minimum: 1 }),
  outputTokenLimit: Type.Integer({ minimum: 1 }),
  supportedGenerationMethods: Type.Array(Type.String()),
  thinking: Type.Boolean(),
});
export type GeminiModel = Static<typeof GeminiModel>;

export const GeminiModelList = Type.Object({
  models: Type.Array(GeminiModel),
  nextPageToken: OptionalText,
});
export type GeminiModelList = Static<typeof GeminiModelList>;

const PAGE_SIZE_DEFAULT = 50;
const PAGE_SIZE_MAX = 1_000;
const METHODS = ["generateContent", "streamGenerateContent", "countTokens"];

/** Returns the page of a list that a query asks for. Throws InvalidRequestError. */
export function toGeminiModels(
  models: readonly Model[],
  { pageSize = String(PAGE_SIZE_DEFAULT), pageToken = "0" }: Record<string, unknown>,
): GeminiModelList {
  const [size, from] = [pageSize, pageToken].map((text) => (/^\d{1,9}$/.test(String(text)) ? Number(text) : undefined));
  if (size === undefined || size < 1) refuse(invalid("pageSize", `expected 1 to ${PAGE_SIZE_MAX}`));
  if (from === undefined) refuse(invalid("pageToken", "expected the nextPageToken of a list"));
  const to = from + Math.min(size, PAGE_SIZE_MAX);
  return {
    models: models.slice(from, to).map(toGeminiModel),
    ...(to < models.length && { nextPageToken: String(to) }),
  };
}

export function toGeminiModel({ id, name, description, capabilities, ...model }: Model): GeminiModel {
  return {
    name: `models/${id}`,
    version: "001",
    displayName: name,
    description,
    inputTokenLimit: model.max_input_tokens ?? model.context_window,
    outputTokenLimit: model.max_output_tokens,
    supportedGenerationMethods: METHODS,
    thinking: capabilities.includes("reasoning"),
  };
}
