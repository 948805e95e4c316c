import { type Static, Type } from "typebox";
import { FlagOf, NumberOf, OptionalKeys, TextOf } from "../schema.ts";
import {
  Amount,
  ChangeOf,
  Entity,
  Id,
  Limits,
  Name,
  Nullable,
  PageOf,
  PositiveAmount,
  Strict,
  Time,
  TimeOf,
} from "./common.ts";

const METADATA_KEYS_MAX = 16;
const VALUES_MAX = 100;
const Value = Type.String({ minLength: 1, maxLength: 512 });
const Models = Type.Array(Type.String({ minLength: 1, maxLength: 200, pattern: "^[^*]*\\*?$" }), {
  minItems: 1,
  maxItems: VALUES_MAX,
  description: "Ids of models; `*` at the end stands for every ending.",
});
/** Without a pattern of the record: values of keys that it does not match would not be checked. */
const Metadata = Type.Unsafe<Record<string, string[]>>({
  type: "object",
  minProperties: 1,
  maxProperties: METADATA_KEYS_MAX,
  propertyNames: { pattern: "^.{1,64}$", description: "keys of 1 to 64 characters" },
  additionalProperties: Type.Array(Value, { minItems: 1, maxItems: VALUES_MAX }),
  description:
    "Values of `metadata` by key. A request needs one of the values of each key; `(none)` is the absence of one.",
});
const Window = Type.Enum(["day", "week", "month", "lifetime"], {
  description: "In UTC, by the store's clock. Weeks begin on Monday. Default: `month`.",
});
const Each = Type.String({
  pattern: "^(token|model|metadata\\..{1,64})$",
  description: "`token`, `model` or `metadata.` and a key: each value has the whole amount and the limits for itself.",
});

export const BudgetCounter = Type.Object({
  value: Nullable(TextOf("The value of `each`; null if all share the amount.")),
  begins_at: Nullable(Time),
  resets_at: Nullable(Time),
  limit: NumberOf("The amount, with the raises in this window."),
  spent: Amount,
  held: Amount,
  remaining: Amount,
});
export type BudgetCounter = Static<typeof BudgetCounter>;

export const Budget = Entity("budget", {
  id: Id,
  organization_id: Id,
  name: Type.String(),
  selector: Type.Object({
    tokens: Nullable(
      Type.Array(Id, { description: "With those before and after them in rotation, by the first one." }),
    ),
    models: Nullable(Type.Array(Type.String())),
    metadata: Nullable(Type.Record(Type.String(), Type.Array(Type.String()))),
  }),
  each: Nullable(Type.String()),
  window: Window,
  amount: Nullable(NumberOf("Credits for each window; null: it has limits only.")),
  limits: Nullable(Limits),
  cap_of: Nullable(
    TextOf("The token whose spending cap it is, after a rotation its successor. It is changed with the token."),
  ),
  by_callers_word: FlagOf(
    "True if it depends on metadata that is not pinned for every caller it covers: one of them can choose another value.",
  ),
  current: Nullable(BudgetCounter),
  resets_at: Nullable(TimeOf("End of the current window; null for a lifetime and where there are limits only.")),
  created_at: Time,
});
export type Budget = Static<typeof Budget>;
export const BudgetWithCounters = Type.Object({ ...Budget.properties, counters: PageOf(BudgetCounter) });

export const NewBudget = Strict({
  name: Name,
  ...OptionalKeys({
    selector: Strict(
      OptionalKeys({
        tokens: Nullable(Type.Array(Id, { minItems: 1, maxItems: VALUES_MAX })),
        models: Nullable(Models),
        metadata: Nullable(Metadata),
      }),
    ),
    each: Nullable(Each),
    window: Window,
    amount: Nullable(PositiveAmount),
    limits: Nullable(Limits),
  }),
});
export type NewBudget = Static<typeof NewBudget>;
export const BudgetChange = ChangeOf({ name: Name, amount: PositiveAmount, limits: Nullable(Limits) });
export const BudgetRaise = Strict({
  amount: PositiveAmount,
  value: Type.Optional(Nullable(Value)),
});
