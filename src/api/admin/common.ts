import { type Static, type TSchema, Type } from "typebox";

/** Shared schemas of `/admin/v1`. Amounts are in credits, times in ISO 8601 and UTC, days `YYYY-MM-DD` in UTC. */

export const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** Schema of a body or a query. Unknown fields are rejected. */
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
const Tokens = Type.Integer({ minimum: 0 });
const Part = Type.Optional(Type.Integer({ minimum: 0 }));
export const TokensByClass = Type.Object(
  {
    input: Tokens,
    cached_input: Tokens,
    cache_write: Tokens,
    output: Tokens,
    reasoning: Tokens,
    cache_write_1h: Part,
    cached_audio: Part,
    input_audio: Part,
    input_image: Part,
    output_audio: Part,
    output_image: Part,
    requests: Part,
    searches: Part,
    images: Part,
  },
  {
    description:
      "`cache_write_1h` is a part of `cache_write`, `cached_audio` of `cached_input`, the other parts of `input` or `output`. `requests`, `searches` and `images` are calls with a price of their own.",
  },
);
export type TokensByClass = Static<typeof TokensByClass>;
const PartPrice = Type.Optional(Type.Number());
export const PricesByClass = Type.Object(
  {
    input: Type.Number(),
    cached_input: Type.Number(),
    cache_write: Type.Number(),
    output: Type.Number(),
    reasoning: Type.Number(),
    cache_write_1h: PartPrice,
    cached_audio: PartPrice,
    input_audio: PartPrice,
    input_image: PartPrice,
    output_audio: PartPrice,
    output_image: PartPrice,
    requests: PartPrice,
    searches: PartPrice,
    images: PartPrice,
  },
  { description: "Credits per million tokens; of `requests`, `searches` and `images` credits each." },
);
export type PricesByClass = Static<typeof PricesByClass>;
/** Amount in a request. */
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

export const PAGE_LIMIT_MAX = 200;
export const PageQuery = {
  cursor: Type.Optional(
    Type.String({ minLength: 1, maxLength: 400, description: "`next_cursor` of the previous page." }),
  ),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: PAGE_LIMIT_MAX, default: 50, description: "Maximum number of entries." }),
  ),
};
/** Page of a list; `next_cursor` is null on the last page. Earlier pages of search results may be short or empty. */
export const PageOf = <T extends TSchema>(entry: T) =>
  Type.Object({ object: Type.Literal("list"), data: Type.Array(entry), next_cursor: Nullable(Type.String()) });
