import { type Static, Type } from "typebox";
import { Amount, Id, Limits, Name, Nullable, PageOf, PageQuery, Strict, Time } from "./common.ts";

export const ORGANIZATION_STATUSES = ["active", "paused"] as const;

export const Credits = Type.Object({
  available: Amount,
  held: Amount,
  used: Amount,
  total: Type.Number({ description: "All credits granted that have not lapsed." }),
});
export type Credits = Static<typeof Credits>;

export const Organization = Type.Object({
  object: Type.Literal("organization"),
  id: Id,
  name: Type.String(),
  kind: Type.Enum(["standard", "playground"]),
  status: Type.Enum([...ORGANIZATION_STATUSES]),
  limits: Nullable(Limits),
  keeps_conversations: Type.Boolean({
    description: "Whether prompts and answers are kept for some days, for the operator alone to read.",
  }),
  credits: Credits,
  created_at: Time,
});
export type Organization = Static<typeof Organization>;

export const OrganizationQuery = Strict({
  ...PageQuery,
  search: Type.Optional(Type.String({ maxLength: 200, description: "Part of the name, or an id." })),
  status: Type.Optional(Type.Enum([...ORGANIZATION_STATUSES])),
});
export const OrganizationPage = PageOf(Organization);

export const NewOrganization = Strict({
  name: Name,
  limits: Type.Optional(Nullable(Limits)),
});
export const OrganizationChange = Strict(
  {
    name: Type.Optional(Name),
    status: Type.Optional(Type.Enum([...ORGANIZATION_STATUSES])),
    limits: Type.Optional(Nullable(Limits)),
    keeps_conversations: Type.Optional(
      Type.Boolean({ description: "In force at once; what was kept before stays until its days are over." }),
    ),
  },
  { minProperties: 1 },
);
