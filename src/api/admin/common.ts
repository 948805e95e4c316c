import { type Static, type TProperties, type TSchema, type TSchemaOptions, Type } from "typebox";
import { type ByName, CALL_ROWS, FURTHER_ROWS, PRICE_CLASSES, TOKEN_CLASSES } from "../price-classes.ts";
import { Nullable, NumberOf, ObjectOf, OptionalKeys, Strict } from "../schema.ts";

export { Nullable, Strict };

/** Shared schemas of `/admin/v1`. Amounts are in credits, times in ISO 8601 and UTC, days `YYYY-MM-DD` in UTC. */

/** Schema of an object of the API, which names its kind in `object`. */
export const Entity = <const Kind extends string, Fields extends TProperties>(object: Kind, fields: Fields) =>
  Type.Object({ object: Type.Literal(object), ...fields });

/** Schema of the body of a change: absent fields stay unchanged, and one has to be present. */
export const ChangeOf = <T extends Record<string, TSchema>>(fields: T) =>
  Strict(OptionalKeys(fields), { minProperties: 1 });

export const TimeOf = (description: string) =>
  Type.String({
    pattern: "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}(:\\d{2}(\\.\\d{1,3})?)?(Z|[+-]\\d{2}:\\d{2})$",
    description,
  });
export const Time = TimeOf("A time such as 2030-01-31T18:00:00Z.");
export const Day = Type.String({ pattern: "^\\d{4}-\\d{2}-\\d{2}$", description: "A day in UTC, YYYY-MM-DD." });
export const Id = Type.String({ minLength: 1, maxLength: 200 });
export const Name = Type.String({ minLength: 1, maxLength: 200 });
export const Amount = NumberOf("Credits.");
/** A retry that was charged less. */
export const RetryCredit = Nullable(
  ObjectOf(
    "The broken attempt that the request repeats, and the credits that were not charged because the attempt was. Null for a request that repeats none.",
    { of: Id, credited: Amount },
  ),
);

const CALL_NAMES = CALL_ROWS.map(({ name }) => `\`${name}\``);
const CALLS = `${CALL_NAMES.slice(0, -1).join(", ")} and ${CALL_NAMES.at(-1)}`;

function byClass(schema: TSchema, options: TSchemaOptions) {
  const whole = TOKEN_CLASSES.map((name) => [PRICE_CLASSES[name].name, schema]);
  const further = FURTHER_ROWS.map(({ name }) => [name, Type.Optional(schema)]);
  return Type.Unsafe<ByName<number>>(Type.Object(Object.fromEntries([...whole, ...further]), options));
}
export const TokensByClass = byClass(Type.Integer({ minimum: 0 }), {
  description: `\`cache_write_1h\` is a part of \`cache_write\`, \`cached_audio\` of \`cached_input\`, the other parts of \`input\` or \`output\`. ${CALLS} are calls with a price of their own.`,
});
export type TokensByClass = ByName<number>;
export const PricesByClass = byClass(Type.Number(), {
  description: `Credits per million tokens; of ${CALLS} credits each.`,
});
export type PricesByClass = ByName<number>;
export const PositiveAmount = Type.Number({
  exclusiveMinimum: 0,
  maximum: 1_000_000_000,
  description: "Credits, with at most 6 decimals.",
});

/** Limits that differ from those of the service; null for no difference. */
export const Limits = Strict({
  requests_per_minute: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
  tokens_per_minute: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
  concurrent_requests: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000 })),
});
export type Limits = Static<typeof Limits>;

export const PageQuery = OptionalKeys({
  cursor: Type.String({ minLength: 1, maxLength: 400, description: "`next_cursor` of the previous page." }),
  limit: Type.Integer({ minimum: 1, maximum: 200, default: 50, description: "Maximum number of entries." }),
});
/** Page of a list; `next_cursor` is null on the last page. Earlier pages of search results may be short or empty. */
export const PageOf = <T extends TSchema>(entry: T) =>
  Type.Object({ object: Type.Literal("list"), data: Type.Array(entry), next_cursor: Nullable(Type.String()) });
