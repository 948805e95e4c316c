import { type Static, Type } from "typebox";
import { FlagOf, IntegerOf, ListOf, NumberOf, ObjectOf, OptionalKeys, TextOf } from "../schema.ts";
import { LINE, LINE_WORDS } from "../wording.ts";
import {
  Amount,
  Entity,
  Id,
  Nullable,
  PageOf,
  PositiveAmount,
  RetryCredit,
  Strict,
  Time,
  TimeOf,
  TokensByClass,
} from "./common.ts";
import { Credits } from "./organization.ts";

const Reference = Nullable(
  Type.String({
    pattern: LINE,
    description: `${LINE_WORDS}: the purpose. A reference of an organization takes effect once; the same reference with other terms is rejected.`,
  }),
);
const Note = Nullable(Type.String({ pattern: LINE, description: `${LINE_WORDS}: the reason.` }));

export const Grant = Entity("grant", {
  id: Id,
  organization_id: Id,
  source: Type.Enum(["grant", "credit"], { description: "A credit refunds a charge." }),
  amount: Amount,
  remaining: NumberOf("Credits that are not spent, held or expired."),
  revoked: NumberOf("Revoked credits."),
  state: Type.Enum(["pending", "active", "expired"]),
  priority: IntegerOf("Grants with a lower priority are spent first."),
  reference: Nullable(Type.String()),
  effective_at: Time,
  expires_at: Nullable(Time),
  created_at: Time,
});
export type Grant = Static<typeof Grant>;
export const NewGrant = Strict({
  amount: PositiveAmount,
  ...OptionalKeys({
    effective_at: Nullable(Time),
    expires_at: Nullable(Time),
    priority: Type.Integer({
      minimum: 0,
      maximum: 1000,
      default: 0,
      description: "Grants with a lower priority are spent first.",
    }),
    reference: Reference,
  }),
});

export const Booking = Entity("booking", {
  id: Id,
  organization_id: Id,
  amount: Amount,
  repeated: FlagOf("True if an earlier request with the same reference made the change; this request changed nothing."),
  credits: Credits,
});
export type Booking = Static<typeof Booking>;

export const NewRevocation = Strict(
  OptionalKeys({
    amount: Nullable(PositiveAmount),
    all: Type.Boolean({ default: false, description: "Revokes all available credits. Not together with `amount`." }),
    grant_id: Nullable(Id),
    reference: Reference,
    note: Note,
  }),
);
export type NewRevocation = Static<typeof NewRevocation>;
export const NewCredit = Strict({
  amount: PositiveAmount,
  ...OptionalKeys({
    request_id: Nullable({ ...Id, description: "`id` of the request whose charge is corrected." }),
    expires_at: Nullable(Time),
    reference: Reference,
    note: Note,
  }),
});

export const NewCreditRequest = Strict({ amount: PositiveAmount, ...OptionalKeys({ note: Note }) });
export const CreditRequest = Entity("credit_request", {
  organization_id: Id,
  amount: Amount,
  note: Nullable(Type.String()),
  repeated: FlagOf("True if the caller has asked today; nothing was sent again."),
});

export const Allowance = Entity("allowance", {
  id: Id,
  organization_id: Id,
  amount: NumberOf("Credits per month."),
  lapses: FlagOf("True if unspent credits expire when the next month begins."),
  reference: Nullable(Type.String()),
  begins_at: Time,
  next_at: Time,
  ended_at: Nullable(Time),
  created_at: Time,
});
export type Allowance = Static<typeof Allowance>;
export const ChangedAllowance = Type.Object({
  ...Allowance.properties,
  repeated: FlagOf("True if an earlier request made the change; this request changed nothing."),
});
export const NewAllowance = Strict({
  amount: PositiveAmount,
  begins_at: Type.Optional(Nullable(Time)),
  lapses: Type.Optional(Type.Boolean({ default: true })),
  reference: Type.Optional(Reference),
});

const StatementKind = Type.Enum(["grant", "charge", "revoke", "credit", "lapse"]);
export const StatementEntry = Entity("statement_entry", {
  kind: StatementKind,
  at: Time,
  amount: NumberOf("Credits; positive for additions, negative for deductions."),
  balance: NumberOf("Credits after the entry, including held and not yet effective ones."),
  budgets: ListOf("Budgets in which a charge and its refunds count, with the window of the request's admission.", {
    id: Id,
    name: Nullable(TextOf("Null: the budget was deleted.")),
    begins_at: Nullable(Time),
    value: Nullable(TextOf("The value of `each`; null if all share the amount.")),
  }),
  id: Nullable(TextOf("Id of the grant, the adjustment or the charged request.")),
  token_id: Nullable(Id),
  token_name: Nullable(TextOf("Its present name.")),
  request_id: Nullable(Id),
  model: Nullable(Type.String()),
  route: Nullable(Type.String()),
  tokens: Nullable(TokensByClass),
  basis: Nullable(TextOf("How the tokens of a charge were counted.")),
  ending: Nullable(Type.String()),
  shortfall: Nullable(NumberOf("Part of the price of a charge that the credits did not cover.")),
  retry: RetryCredit,
  metadata: Nullable(Type.Record(Type.String(), Type.String())),
  corrected_request_id: Nullable(TextOf("Request whose charge the credit corrects.")),
  reference: Nullable(Type.String()),
  note: Nullable(TextOf("The reason; for expired credits, the ids of their grants.")),
});
export type StatementEntry = Static<typeof StatementEntry>;
export const StatementFilter = {
  from: Type.Optional(Time),
  to: Type.Optional(TimeOf("A time such as 2030-01-31T18:00:00Z, which no longer belongs to it.")),
  kind: Type.Optional(StatementKind),
};
export const MonthDigest = Type.Object({
  month: TextOf("The month, in UTC, such as 2030-01."),
  digest: TextOf("SHA-256 of what was booked in it, and of the digest of the month before."),
});
export type MonthDigest = Static<typeof MonthDigest>;
const StatementTotals = (description: string) =>
  ObjectOf(description, {
    grant: NumberOf("Without those of allowances."),
    ...{ allowance: Type.Number(), charge: Type.Number(), revoke: Type.Number() },
    credit: NumberOf("Refunds."),
    lapse: NumberOf("Expired credits."),
  });
export const StatementPage = Type.Object({
  ...PageOf(StatementEntry).properties,
  opening: NumberOf("Credits before the first entry."),
  totals: Nullable(
    StatementTotals("Sums of the amounts of the period by kind, also with a filter by kind; only on the first page."),
  ),
  closing: Nullable(NumberOf("Credits after the last entry of the period; only on the first page.")),
  closed_before: Nullable(TextOf("Older requests are closed: a statement begins here. Null: none.")),
  digests: Type.Array(MonthDigest, {
    description: "Digests of the months that lie in the period, of those that are over for at least a day.",
  }),
});
export type StatementPage = Static<typeof StatementPage>;

export const StatementSearch = OptionalKeys({
  organization_id: Id,
  month: Type.String({ pattern: "^\\d{4}-\\d{2}$", description: "A month in UTC, YYYY-MM." }),
});
const StatedCustomer = ObjectOf("The organization when the statement was made.", {
  name: Type.String(),
  external_id: Nullable(Type.String()),
  contacts: Type.Array(Type.String()),
});
export const ListedStatement = Entity("monthly_statement", {
  id: TextOf("The number of the statement with its prefix. The numbers have no gaps."),
  organization_id: Id,
  month: TextOf("The month, in UTC, such as 2030-01."),
  made_at: Time,
  final: FlagOf("True for the last statement of a closed organization."),
  customer: StatedCustomer,
  opening: NumberOf("Credits at the beginning of the month."),
  totals: StatementTotals("Sums of the amounts of the month by kind."),
  closing: NumberOf("Credits at the end of the month."),
  digest: TextOf("The digest of the month."),
});
export type ListedStatement = Static<typeof ListedStatement>;
const CHARGES = {
  requests: Type.Integer(),
  input_tokens: Type.Integer(),
  output_tokens: Type.Integer(),
  amount: Amount,
};
/** A statement never changes, even if the organization or the configuration does. */
export const MonthlyStatement = Type.Object({
  ...ListedStatement.properties,
  letterhead: ObjectOf("The issuer, as configured when the statement was made.", {
    name: Nullable(Type.String()),
    address: Type.Array(Type.String()),
    tax_id: Nullable(Type.String()),
    footer: Nullable(Type.String()),
  }),
  bookings: ListOf("Bookings other than charges, the oldest first. After 500, one sum for each kind, without an id.", {
    kind: Type.Enum(["grant", "allowance", "credit", "revoke", "lapse"]),
    ...{ at: Nullable(Time), id: Nullable(Id), amount: Amount },
    ...{ reference: Nullable(Type.String()), note: Nullable(Type.String()) },
  }),
  models: ListOf("Charges by model, the highest first. Those after the first 500 are added up, with `model` null.", {
    ...{ model: Nullable(Type.String()), ...CHARGES },
  }),
  tokens: ListOf("Charges by token, the highest first. Those after the first 500 are added up, with `token_id` null.", {
    ...{ token_id: Nullable(Id), token_name: Nullable(TextOf("Its name when the statement was made.")), ...CHARGES },
  }),
});
export type MonthlyStatement = Static<typeof MonthlyStatement>;
