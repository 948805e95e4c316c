import { type Static, Type } from "typebox";
import { Amount, Id, Limits, Name, Nullable, PositiveAmount, Strict, Time } from "./common.ts";
import { CREDIT_WARNINGS_MAX } from "./event-kinds.ts";

export const OrganizationStatus = Type.Enum(["active", "paused"]);

export const Credits = Type.Object({
  available: Amount,
  held: Amount,
  used: Amount,
  total: Type.Number({ description: "All granted credits that have not expired." }),
});
export type Credits = Static<typeof Credits>;

export const Organization = Type.Object({
  object: Type.Literal("organization"),
  id: Id,
  name: Type.String(),
  kind: Type.Enum(["standard", "playground"]),
  status: OrganizationStatus,
  limits: Nullable(Limits),
  keeps_conversations: Type.Boolean({
    description: "True if prompts and answers are stored for some days, readable only by the operator.",
  }),
  keeps_responses: Type.Boolean({
    description:
      "True if items of its responses are kept for some hours, so that requests of the same token can refer to them; nobody else can read them.",
  }),
  pauses_allowances: Type.Boolean({
    description: "True if it is paused together with its allowances: months that begin meanwhile are not granted.",
  }),
  credits: Credits,
  days_left: Nullable(
    Type.Number({
      description:
        "Days until the available credits are spent at the rate of the last 7 finished days, from the stored sums of these days; null without charges.",
    }),
  ),
  credit_warnings: Nullable(
    Type.Array(Amount, { description: "Credits at which it is warned, in addition to shares of its last top-up." }),
  ),
  created_at: Time,
});
export type Organization = Static<typeof Organization>;

export const NewOrganization = Strict({
  name: Name,
  limits: Type.Optional(Nullable(Limits)),
});
export const OrganizationChange = Strict(
  {
    name: Type.Optional(Name),
    status: Type.Optional(OrganizationStatus),
    pauses_allowances: Type.Optional(
      Type.Boolean({
        default: false,
        description:
          "With `status: paused`: no month of its allowances is granted until it is resumed. Months that begin meanwhile are skipped.",
      }),
    ),
    limits: Type.Optional(Nullable(Limits)),
    credit_warnings: Type.Optional(
      Nullable(
        Type.Array(PositiveAmount, {
          ...{ minItems: 1, maxItems: CREDIT_WARNINGS_MAX },
          description:
            "Credits at which it is warned, in addition to 50, 20, 5 and 0 % of its last top-up; null for none.",
        }),
      ),
    ),
    keeps_conversations: Type.Optional(
      Type.Boolean({ description: "Takes effect at once; stored conversations remain until they expire." }),
    ),
    keeps_responses: Type.Optional(
      Type.Boolean({
        description:
          "Takes effect at once: with false, no request can refer to an earlier response. Items that are kept remain until they expire or are deleted.",
      }),
    ),
  },
  { minProperties: 1 },
);
