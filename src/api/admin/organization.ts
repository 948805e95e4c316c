import { type Static, Type } from "typebox";
import { ALIAS, ALIASES_MAX, CLOSING_RESTS, CONTACTS_MAX, EXTERNAL_ID_PATTERN } from "../principal.ts";
import { FlagOf, NumberOf, OptionalKeys } from "../schema.ts";
import { LINES } from "../wording.ts";
import { Amount, ChangeOf, Entity, Id, Limits, Name, Nullable, PositiveAmount, Strict, Time } from "./common.ts";
import { CREDIT_WARNINGS_MAX } from "./event-kinds.ts";

export const OrganizationStatus = Type.Enum(["active", "paused", "closed"]);

export const Credits = Type.Object({
  available: Amount,
  held: Amount,
  used: Amount,
  total: NumberOf("All granted credits that have not expired."),
});
export type Credits = Static<typeof Credits>;

const ModelIds = (description: string) => Type.Array(Id, { minItems: 1, maxItems: 500, description });

export const OwnTokenBounds = Strict({
  max_count: Type.Integer({
    minimum: 0,
    maximum: 1_000,
    description: "Active tokens that each person can have; with 0 only operators create tokens.",
  }),
  models: Nullable(ModelIds("Models that these tokens can call; null for all.")),
  max_cap: Nullable(
    Type.Number({
      ...PositiveAmount,
      description: "Highest spending cap of a token, in credits; null: a token needs none.",
    }),
  ),
  max_days: Nullable(
    Type.Integer({
      minimum: 1,
      maximum: 3_650,
      description: "Longest time until the expiry of a token; null: it need not expire.",
    }),
  ),
});

/** Id of an organization in another system. */
export const ExternalId = Type.String({
  pattern: EXTERNAL_ID_PATTERN.source,
  description:
    "1 to 200 ASCII characters without spaces, unique here: its id in another system, such as a billing system.",
});

/** Terms that an operator agrees with an organization, and notes of it. */
const TERMS = {
  limits: Nullable(Limits),
  models: Nullable(
    ModelIds("Models that its tokens can call at most, with `*` at the end for all that begin so; null for all."),
  ),
  aliases: Nullable(
    Type.Unsafe<Record<string, string>>({
      ...{ type: "object", minProperties: 1, maxProperties: ALIASES_MAX },
      propertyNames: { pattern: ALIAS.source, description: "names without spaces and *" },
      additionalProperties: { type: "string", minLength: 1, maxLength: 200 },
      description: "Further names of models, which only its requests can use: the id of a model by each.",
    }),
  ),
  price_list: Nullable(
    Type.String({
      ...{ minLength: 1, maxLength: 64 },
      description: "Name of a list in the configuration's `priceLists`; null for the prices of the models.",
    }),
  ),
  external_id: Nullable(ExternalId),
  contacts: Nullable(
    Type.Array(Type.String({ minLength: 3, maxLength: 320 }), {
      minItems: 1,
      maxItems: CONTACTS_MAX,
      description: "Mail addresses.",
    }),
  ),
  note: Nullable(
    Type.String({ pattern: LINES, maxLength: 2_000, description: "Visible text, only for operators and auditors." }),
  ),
};

export const Organization = Entity("organization", {
  id: Id,
  name: Type.String(),
  kind: Type.Enum(["standard", "playground"]),
  status: OrganizationStatus,
  ...TERMS,
  keeps_conversations: FlagOf("True if prompts and answers are stored for some days, readable only by the operator."),
  keeps_responses: FlagOf(
    "True if items of its responses are kept for some hours, so that requests of the same token can refer to them; nobody else can read them.",
  ),
  pauses_allowances: FlagOf(
    "True if it is paused together with its allowances: months that begin meanwhile are not granted.",
  ),
  token_bounds: OwnTokenBounds,
  credits: Credits,
  days_left: Nullable(
    NumberOf(
      "Days until the available credits are spent at the rate of the last 7 finished days, or of all the time since a later creation; null without charges.",
    ),
  ),
  credit_warnings: Nullable(
    Type.Array(Amount, { description: "Credits at which it is warned, in addition to shares of its last top-up." }),
  ),
  created_at: Time,
  erased_at: Nullable(Time),
});
export type Organization = Static<typeof Organization>;

export const NewOrganization = Strict({
  name: Name,
  ...OptionalKeys(TERMS),
});
export type NewOrganization = Static<typeof NewOrganization>;
export const OrganizationChange = ChangeOf({
  name: Name,
  status: Type.Enum(["active", "paused"]),
  pauses_allowances: Type.Boolean({
    default: false,
    description:
      "With `status: paused`: no month of its allowances is granted until it is resumed. Months that begin meanwhile are skipped.",
  }),
  ...TERMS,
  credit_warnings: Nullable(
    Type.Array(PositiveAmount, {
      ...{ minItems: 1, maxItems: CREDIT_WARNINGS_MAX },
      description: "Credits at which it is warned, in addition to 50, 20, 5 and 0 % of its last top-up; null for none.",
    }),
  ),
  keeps_conversations: FlagOf("Takes effect at once; stored conversations remain until they expire."),
  keeps_responses: FlagOf(
    "Takes effect at once: with false, no request can refer to an earlier response. Items that are kept remain until they expire or are deleted.",
  ),
});
export const OrganizationClosing = Strict({
  rest: Type.Enum([...CLOSING_RESTS], {
    description:
      "What you do with the credits that are left: pay them back, or not. The revocation says it in the statement.",
  }),
});
