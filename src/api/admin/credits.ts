import { type Static, Type } from "typebox";
import {
  Amount,
  Id,
  Nullable,
  PageOf,
  PageQuery,
  PositiveAmount,
  Strict,
  Time,
  TimeOf,
  TokensByClass,
} from "./common.ts";
import { Credits } from "./organization.ts";

const LINE = "^[^\\p{Cc}]{1,200}$";
const Reference = Nullable(
  Type.String({
    pattern: LINE,
    description:
      "1 to 200 characters on one line: what it is for. The same reference of an organization books once; with other terms it is refused.",
  }),
);
const Note = Nullable(Type.String({ pattern: LINE, description: "1 to 200 characters on one line: why." }));

export const Grant = Type.Object({
  object: Type.Literal("grant"),
  id: Id,
  organization_id: Id,
  source: Type.Enum(["grant", "credit"], { description: "A credit gives back what was spent." }),
  amount: Amount,
  remaining: Type.Number({ description: "Credits that are neither spent, held nor lapsed." }),
  revoked: Type.Number({ description: "Credits that were taken back." }),
  state: Type.Enum(["pending", "active", "lapsed"]),
  priority: Type.Integer({ description: "Lower is drawn first." }),
  reference: Nullable(Type.String()),
  effective_at: Time,
  expires_at: Nullable(Time),
  created_at: Time,
});
export type Grant = Static<typeof Grant>;
export const GrantQuery = Strict(PageQuery);
export const GrantPage = PageOf(Grant);

export const NewGrant = Strict({
  amount: PositiveAmount,
  effective_at: Type.Optional(Nullable(Time)),
  expires_at: Type.Optional(Nullable(Time)),
  priority: Type.Optional(
    Type.Integer({ minimum: 0, maximum: 1000, default: 0, description: "Lower is drawn first." }),
  ),
  reference: Type.Optional(Reference),
});

/** What was booked, and the credits after it. */
export const Booking = Type.Object({
  object: Type.Literal("booking"),
  id: Id,
  organization_id: Id,
  amount: Amount,
  repeated: Type.Boolean({
    description: "Whether it was booked before, under the same reference; then nothing was now.",
  }),
  credits: Credits,
});
export type Booking = Static<typeof Booking>;

export const NewRevocation = Strict({
  amount: Type.Optional(Nullable(PositiveAmount)),
  all: Type.Optional(
    Type.Boolean({ default: false, description: "Revoke everything that is available; without `amount`." }),
  ),
  grant_id: Type.Optional(Nullable(Id)),
  reference: Type.Optional(Reference),
  note: Type.Optional(Note),
});
export type NewRevocation = Static<typeof NewRevocation>;
export const NewCredit = Strict({
  amount: PositiveAmount,
  hold_id: Type.Optional(
    Nullable(
      Type.String({ minLength: 1, maxLength: 200, description: "`id` of the request whose charge it corrects." }),
    ),
  ),
  expires_at: Type.Optional(Nullable(Time)),
  reference: Type.Optional(Reference),
  note: Type.Optional(Note),
});

export const Allowance = Type.Object({
  object: Type.Literal("allowance"),
  id: Id,
  organization_id: Id,
  amount: Type.Number({ description: "Credits a month." }),
  lapses: Type.Boolean({ description: "Whether what is left of a month lapses when the next one begins." }),
  reference: Nullable(Type.String()),
  begins_at: Time,
  next_at: Time,
  ended_at: Nullable(Time),
  created_at: Time,
});
export type Allowance = Static<typeof Allowance>;
export const AllowanceQuery = Strict(PageQuery);
export const AllowancePage = PageOf(Allowance);
export const NewAllowance = Strict({
  amount: PositiveAmount,
  begins_at: Type.Optional(Nullable(Time)),
  lapses: Type.Optional(Type.Boolean({ default: true })),
  reference: Type.Optional(Reference),
});

export const STATEMENT_KINDS = ["grant", "charge", "revoke", "credit", "lapse"] as const;
export const StatementEntry = Type.Object({
  object: Type.Literal("statement_entry"),
  kind: Type.Enum([...STATEMENT_KINDS]),
  at: Time,
  amount: Type.Number({ description: "Credits: above 0 what came, below 0 what went." }),
  balance: Type.Number({ description: "Credits after it, those that are held or not in force yet included." }),
  id: Nullable(Type.String({ description: "Of the grant, the adjustment, or the request that was charged." })),
  token_id: Nullable(Id),
  request_id: Nullable(Id),
  model: Nullable(Type.String()),
  route: Nullable(Type.String()),
  tokens: Nullable(TokensByClass),
  ending: Nullable(Type.String()),
  hold_id: Nullable(Type.String({ description: "The request that a credit corrects." })),
  reference: Nullable(Type.String()),
  note: Nullable(Type.String()),
});
export type StatementEntry = Static<typeof StatementEntry>;
const Selection = {
  from: Type.Optional(Time),
  to: Type.Optional(TimeOf("A time such as 2030-01-31T18:00:00Z, which no longer belongs to it.")),
  kind: Type.Optional(Type.Enum([...STATEMENT_KINDS])),
};
export const StatementQuery = Strict({ ...PageQuery, ...Selection });
export const StatementCsvQuery = Strict(Selection);
export const StatementPage = Type.Object({
  ...PageOf(StatementEntry).properties,
  opening: Type.Number({ description: "Credits before the first entry that was looked at." }),
});
export type StatementPage = Static<typeof StatementPage>;
