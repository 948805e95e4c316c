import { type Static, Type } from "typebox";
import type { Model } from "../model.ts";
import { OptionalText, Typed } from "../schema.ts";
import { compileCheck, refuseIf } from "../validation.ts";

const Timestamp = Type.String({ description: "RFC 3339." });

export const MessagesModel = Typed("model", {
  id: Type.String(),
  display_name: Type.String(),
  created_at: Timestamp,
  max_input_tokens: Type.Union([Type.Integer({ minimum: 1 }), Type.Null()]),
  max_tokens: Type.Integer({ minimum: 1 }),
});

export const MessagesModelList = Type.Object({
  data: Type.Array(MessagesModel),
  first_id: Type.Union([Type.String(), Type.Null()]),
  last_id: Type.Union([Type.String(), Type.Null()]),
  has_more: Type.Boolean(),
});

export type MessagesModel = Static<typeof MessagesModel>;
export type MessagesModelList = Static<typeof MessagesModelList>;

const LIMIT_DEFAULT = 20;
const LIMIT_MAX = 1000;
const ModelPage = Type.Object({
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: LIMIT_MAX })),
  before_id: OptionalText,
  after_id: OptionalText,
});
type ModelPage = Static<typeof ModelPage>;
const checkPage = compileCheck(ModelPage);

/** Reads the page of a list from a query. Throws InvalidRequestError. */
export function readModelPage(query: Record<string, unknown>): ModelPage {
  const { limit } = query;
  const isNumber = typeof limit === "string" && /^\d{1,9}$/.test(limit);
  const page = isNumber ? { ...query, limit: Number(limit) } : query;
  refuseIf(checkPage(page));
  return page as ModelPage;
}

/** Returns a page of a list of models; an unknown id selects nothing. */
export function toMessagesModels(
  models: readonly Model[],
  { limit = LIMIT_DEFAULT, ...page }: ModelPage,
): MessagesModelList {
  const { before_id: before, after_id: after } = page;
  const indexOf = (id: string) => models.findIndex((model) => model.id === id);
  let from = after === undefined ? 0 : indexOf(after) + 1;
  let to = before === undefined ? models.length : indexOf(before);
  if (after !== undefined && from === 0) from = models.length;
  const hasMore = to - from > limit;
  if (before === undefined) to = Math.min(to, from + limit);
  else from = Math.max(from, to - limit);
  const data = models.slice(from, Math.max(from, to)).map(toMessagesModel);
  return { data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null, has_more: hasMore };
}

export function toMessagesModel({ id, name, created, max_input_tokens, max_output_tokens }: Model): MessagesModel {
  return {
    type: "model",
    id,
    display_name: name,
    created_at: new Date(created * 1000).toISOString(),
    max_input_tokens,
    max_tokens: max_output_tokens,
  };
}
