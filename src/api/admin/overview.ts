import { type Static, Type } from "typebox";
import { Amount, Day, Id, Nullable, Strict, Time } from "./common.ts";
import { Credits } from "./organization.ts";

const Counts = {
  requests: Type.Integer({ minimum: 0 }),
  errors: Type.Integer({ minimum: 0, description: "Requests that failed on our side or the provider's." }),
  spent: Amount,
  input_tokens: Type.Integer({ minimum: 0, description: "Cached ones and cache writes too." }),
  output_tokens: Type.Integer({ minimum: 0, description: "Reasoning too." }),
};
const FirstToken = Nullable(
  Type.Object(
    { p50: Type.Number(), p95: Type.Number() },
    { description: "Milliseconds from admission to the first piece of the answer, to within a tenth." },
  ),
);

export const Overview = Type.Object({
  object: Type.Literal("overview"),
  organization_id: Nullable(Id),
  from: Day,
  to: Day,
  generated_at: Time,
  pending_days: Type.Integer({ minimum: 0, description: "Days of the range that are still being summed up." }),
  credits: Type.Object({
    ...Credits.properties,
    spent_per_day: Type.Number({ description: "The mean of the last 7 days." }),
    days_left: Nullable(Type.Number({ description: "How long the available credits last at that pace." })),
  }),
  totals: Type.Object({ ...Counts, first_token_ms: FirstToken }),
  days: Type.Array(
    Type.Object({
      day: Day,
      ...Counts,
      first_token_ms: FirstToken,
      models: Type.Array(Type.Object({ model: Type.String(), ...Counts })),
    }),
    { description: "Every day of the range, the oldest first; its models by what they cost." },
  ),
  top_models: Type.Array(Type.Object({ model: Type.String(), ...Counts })),
  top_tokens: Type.Array(
    Type.Object({ token_id: Id, name: Nullable(Type.String()), organization_id: Nullable(Id), ...Counts }),
  ),
  top_organizations: Type.Array(Type.Object({ organization_id: Id, name: Nullable(Type.String()), ...Counts }), {
    description: "Empty where one organization was asked for.",
  }),
});
export type Overview = Static<typeof Overview>;

export const OverviewQuery = Strict({
  organization_id: Type.Optional(Id),
  from: Type.Optional(Day),
  to: Type.Optional(Day),
});
