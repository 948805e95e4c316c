import { type Static, type TSchema, Type } from "typebox";

/** The shapes that all of `/admin/v1` shares. Amounts are in credits, times ISO 8601 in UTC, days `YYYY-MM-DD` in UTC. */

export const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** A body or a query: a field that it does not name is refused. */
export const Strict = <T extends Record<string, TSchema>>(properties: T, options: object = {}) =>
  Type.Object(properties, { additionalProperties: false, ...options });

export const TimeOf = (description: string) =>
  Type.String({
    pattern: "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}(:\\d{2}(\\.\\d{1,3})?)?(Z|[+-]\\d{2}:\\d{2})$",
    description,
  });
export const Time = TimeOf("A time such as 2030-01-31T18:00:00Z.");
export const Day = Type.String({ pattern: "^\\d{4}-\\d{2}-\\d{2}$", description: "A day in UTC, YYYY-MM-DD." });
export const Id = Type.String({ minLength: 1, maxLength: 200 });
export const Name = Type.String({ minLength: 1, maxLength: 200 });
export const Amount = Type.Number({ description: "Credits." });
export const TokensByClass = Type.Object({
  input: Type.Integer({ minimum: 0 }),
  cached_input: Type.Integer({ minimum: 0 }),
  cache_write: Type.Integer({ minimum: 0 }),
  output: Type.Integer({ minimum: 0 }),
  reasoning: Type.Integer({ minimum: 0 }),
});
export type TokensByClass = Static<typeof TokensByClass>;
export const PricesByClass = Type.Object(
  {
    input: Type.Number(),
    cached_input: Type.Number(),
    cache_write: Type.Number(),
    output: Type.Number(),
    reasoning: Type.Number(),
  },
  { description: "Credits per million tokens." },
);
export type PricesByClass = Static<typeof PricesByClass>;
/** What a caller asks for. */
export const PositiveAmount = Type.Number({
  exclusiveMinimum: 0,
  maximum: 1_000_000_000,
  description: "Credits, with at most 6 decimals.",
});

/** What differs from the service's limits; `null`: nothing does. */
export const Limits = Strict({
  requests_per_minute: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
  tokens_per_minute: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
  concurrent_requests: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000 })),
});
export type Limits = Static<typeof Limits>;

export const PAGE_LIMIT_MAX = 200;
export const PageQuery = {
  cursor: Type.Optional(
    Type.String({ minLength: 1, maxLength: 400, description: "`next_cursor` of the page before." }),
  ),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: PAGE_LIMIT_MAX, default: 50, description: "Entries of a page." }),
  ),
};
/** A page of a list; `next_cursor` is null on the last one. A page that was searched for may be short or empty and go on. */
export const PageOf = <T extends TSchema>(entry: T) =>
  Type.Object({ object: Type.Literal("list"), data: Type.Array(entry), next_cursor: Nullable(Type.String()) });
