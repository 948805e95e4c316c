import { type Static, Type } from "typebox";
import { Model } from "../model.ts";
import { CountOf, FlagOf, IntegerOf, ListOf, NumberOf, ObjectOf, OptionalKeys, TextOf } from "../schema.ts";
import { Amount, Day, Entity, Id, Nullable, PricesByClass, Strict, Time, TimeOf } from "./common.ts";
import { MARGIN_GROUPS } from "./margin-groups.ts";
import { Credits } from "./organization.ts";
import { ACTOR_KINDS } from "./roles.ts";

const Counts = {
  requests: Type.Integer({ minimum: 0 }),
  errors: CountOf("Requests that failed because of the service or the provider."),
  spent: Amount,
  input_tokens: CountOf("Includes cached tokens and cache writes."),
  output_tokens: CountOf("Includes reasoning tokens."),
  provider_cost: Nullable(
    ObjectOf("Null for members.", {
      amount: TextOf("Sum of the costs that providers reported, in their own unit."),
      spent: NumberOf("Credits charged for the requests whose provider reported a cost."),
    }),
  ),
};
const Quantiles = { p50: Type.Number(), p95: Type.Number() };
const FirstToken = Nullable(ObjectOf("Milliseconds from admission to the first token, within 10 %.", Quantiles));

const Refused = CountOf("Requests that were refused before they held credits. Not included in `requests`.");

export const Overview = Entity("overview", {
  organization_id: Nullable(Id),
  from: Day,
  to: Day,
  generated_at: Time,
  pending_days: CountOf("Days of the range whose totals are not complete."),
  credits: Type.Object({
    ...Credits.properties,
    spent_per_day: NumberOf("Mean of the last 7 days, or of the time since a later creation, at least an hour."),
    days_left: Nullable(
      NumberOf(
        "Days until the available credits are spent at that rate. Null without charges, and for all organizations.",
      ),
    ),
  }),
  organizations: Nullable(
    ObjectOf("Null if the request is for one organization.", {
      active: CountOf("Organizations that are not paused, without the playground."),
      out_of_credits: CountOf("Those with at most a thousandth of their granted credits left."),
      ending: ListOf("Up to 10 whose credits last less than 7 days at their rate of the last 7 days.", {
        organization_id: Id,
        name: Type.String(),
        available: Amount,
        days_left: Type.Number(),
      }),
      refused: ListOf("Up to 50 whose requests were refused with insufficient_credits in the period, most first.", {
        organization_id: Id,
        name: Type.String(),
        requests: Type.Integer({ minimum: 1 }),
      }),
    }),
  ),
  totals: Type.Object({ ...Counts, refused: Refused, first_token_ms: FirstToken }),
  days: ListOf("Every day of the range, oldest first, with its models by descending cost.", {
    day: Day,
    ...Counts,
    refused: Refused,
    first_token_ms: FirstToken,
    models: Type.Array(Type.Object({ model: Type.String(), ...Counts })),
  }),
  refusals: ListOf("Refused requests of the period by error code, most frequent first.", {
    code: Type.String(),
    requests: Type.Integer({ minimum: 1 }),
  }),
  top_models: Type.Array(Type.Object({ model: Type.String(), ...Counts })),
  top_tokens: Type.Array(
    Type.Object({ token_id: Id, name: Nullable(Type.String()), organization_id: Nullable(Id), ...Counts }),
  ),
  top_organizations: ListOf("Empty if the request is for one organization.", {
    organization_id: Id,
    name: Nullable(Type.String()),
    ...Counts,
  }),
});
export type Overview = Static<typeof Overview>;

export const Margins = Entity("margins", {
  from: Day,
  to: Day,
  pending_days: CountOf("Days of the range that are not included yet."),
  data: ListOf("By month, the newest first, and by descending charge.", {
    month: TextOf("In UTC, YYYY-MM."),
    name: TextOf("The model, the route, or the id of the organization."),
    requests: Type.Integer({ minimum: 0 }),
    charged: Amount,
    charged_with_cost: NumberOf("Credits charged for the requests whose provider reported a cost."),
    provider_cost: TextOf("Sum of the costs that providers reported, in dollars."),
    margin: TextOf("`charged_with_cost` in dollars, by credits.perDollar, less `provider_cost`."),
  }),
});
export type Margins = Static<typeof Margins>;
export const MarginsQuery = Strict({
  by: Type.Optional(Type.Enum([...MARGIN_GROUPS], { default: "model" })),
  organization_id: Type.Optional(Id),
  from: Type.Optional(Day),
  to: Type.Optional(Day),
});
export type MarginsQuery = Static<typeof MarginsQuery>;

export const Latencies = Entity("latencies", {
  from: Day,
  to: Day,
  pending_days: CountOf("Days of the range that are not included yet."),
  data: ListOf("All routes together, and then those that were used. Each has every day of the range, oldest first.", {
    route: Nullable(Type.String()),
    days: Type.Array(
      Type.Object({
        day: Day,
        first_token_ms: FirstToken,
        duration_ms: Nullable(ObjectOf("Milliseconds from admission to the complete answer, within 10 %.", Quantiles)),
      }),
    ),
  }),
});
export type Latencies = Static<typeof Latencies>;

/** Health of an upstream, from the requests of this node since its start. */
const RouteHealth = Type.Object({
  state: Type.Enum(["closed", "partly_open", "open"], {
    description:
      "State of the circuit breaker. `partly_open`: the route fails for some organizations and answers others. `open`: no organization gets an answer. Organizations for which it fails send only probes.",
  }),
  failing_organizations: CountOf("Organizations for which the route fails."),
  next_probe_at: Nullable(Time),
  limited_until: Nullable(TimeOf("End of the pause that the provider asked for, at most a minute.")),
  last_failure: Nullable(Type.Object({ failure: Type.String(), at: Time })),
  last_success_at: Nullable(Time),
  recent: ObjectOf("Requests of the last five minutes.", { successes: Type.Integer(), failures: Type.Integer() }),
  first_byte_ms: Nullable(NumberOf("Mean time to the first byte of an answer.")),
});

const ModelRoute = Type.Object({
  route: TextOf("Provider, and its name of the model."),
  weight: Nullable(IntegerOf("Relative frequency of being tried first; null if only the order counts.")),
  prices: PricesByClass,
  health: Nullable(RouteHealth),
});
export type ModelRoute = Static<typeof ModelRoute>;

export const ResumedRoute = Entity("route", {
  route: Type.String(),
  health: Nullable(RouteHealth),
});
export type ResumedRoute = Static<typeof ResumedRoute>;

export const AdminModel = Type.Object({
  ...Model.properties,
  playground: FlagOf("True if guests of the playground may use the model."),
  prices: PricesByClass,
  price_history: ListOf("Dated prices of the past and the future, oldest first. Empty: they never changed.", {
    from: Nullable(Time),
    prices: PricesByClass,
  }),
  routes: Nullable(Type.Array(ModelRoute, { description: "Routes in configured order; null for members." })),
});
export type AdminModel = Static<typeof AdminModel>;
export const AdminModelList = Type.Object({ object: Type.Literal("list"), data: Type.Array(AdminModel) });
export type AdminModelList = Static<typeof AdminModelList>;

export const AuditEntry = Entity("audit_entry", {
  id: Id,
  at: Time,
  actor: Type.Object({
    kind: Type.Enum([...ACTOR_KINDS]),
    id: Nullable(Id),
    name: Nullable(TextOf("Name of the operator, or of the member's token, at that time.")),
    address: Nullable(Type.String()),
  }),
  action: TextOf("For example `token.revoke` or `session.sign_in`."),
  organization_id: Nullable(Id),
  subject_id: Nullable(Id),
  before: Nullable(Type.Record(Type.String(), Type.Unknown())),
  after: Nullable(Type.Record(Type.String(), Type.Unknown())),
  request_id: Nullable(Id),
});
export const AuditFilters = OptionalKeys({
  organization_id: Id,
  action: Type.String({ minLength: 1, maxLength: 100 }),
  actor: Type.String({ minLength: 1, maxLength: 200, description: "Id, name or kind of the actor." }),
  subject_id: Id,
  from: Time,
  to: Time,
});

export type AuditEntry = Static<typeof AuditEntry>;

export const SearchResult = Entity("search_result", {
  kind: Type.Enum(["request", "organization", "token", "grant"]),
  id: Id,
  name: TextOf("Name of an organization or a token, model of a request, or reference of a grant."),
  organization_id: Id,
  organization_name: Type.String(),
});
export type SearchResult = Static<typeof SearchResult>;
