import { type Static, Type } from "typebox";
import { Amount, Day, Id, Nullable, Strict, Time } from "./common.ts";
import { Credits } from "./organization.ts";

const Counts = {
  requests: Type.Integer({ minimum: 0 }),
  errors: Type.Integer({ minimum: 0, description: "Requests that failed because of the service or the provider." }),
  spent: Amount,
  input_tokens: Type.Integer({ minimum: 0, description: "Includes cached tokens and cache writes." }),
  output_tokens: Type.Integer({ minimum: 0, description: "Includes reasoning tokens." }),
};
const FirstToken = Nullable(
  Type.Object(
    { p50: Type.Number(), p95: Type.Number() },
    { description: "Milliseconds from admission to the first token, within 10 %." },
  ),
);

export const Overview = Type.Object({
  object: Type.Literal("overview"),
  organization_id: Nullable(Id),
  from: Day,
  to: Day,
  generated_at: Time,
  pending_days: Type.Integer({ minimum: 0, description: "Days of the range whose totals are not complete." }),
  credits: Type.Object({
    ...Credits.properties,
    spent_per_day: Type.Number({ description: "Mean of the last 7 days." }),
    days_left: Nullable(Type.Number({ description: "Days until the available credits are spent at that rate." })),
  }),
  totals: Type.Object({ ...Counts, first_token_ms: FirstToken }),
  days: Type.Array(
    Type.Object({
      day: Day,
      ...Counts,
      first_token_ms: FirstToken,
      models: Type.Array(Type.Object({ model: Type.String(), ...Counts })),
    }),
    { description: "Every day of the range, oldest first, with its models by descending cost." },
  ),
  top_models: Type.Array(Type.Object({ model: Type.String(), ...Counts })),
  top_tokens: Type.Array(
    Type.Object({ token_id: Id, name: Nullable(Type.String()), organization_id: Nullable(Id), ...Counts }),
  ),
  top_organizations: Type.Array(Type.Object({ organization_id: Id, name: Nullable(Type.String()), ...Counts }), {
    description: "Empty if the request is for one organization.",
  }),
});
export type Overview = Static<typeof Overview>;

export const OverviewQuery = Strict({
  organization_id: Type.Optional(Id),
  from: Type.Optional(Day),
  to: Type.Optional(Day),
});
