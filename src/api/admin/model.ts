import { type Static, Type } from "typebox";
import { Model } from "../model.ts";
import { Nullable, PricesByClass, Time } from "./common.ts";

/** Health of an upstream, from the requests of this node since its start. */
const RouteHealth = Type.Object({
  state: Type.Enum(["closed", "open", "half_open"], {
    description: "State of the circuit breaker. An open one lets only occasional probes through.",
  }),
  next_probe_at: Nullable(Time),
  limited_until: Nullable(Time),
  last_failure: Nullable(Type.Object({ failure: Type.String(), at: Time })),
  last_success_at: Nullable(Time),
  recent: Type.Object(
    { successes: Type.Integer(), failures: Type.Integer() },
    { description: "Requests of the last five minutes." },
  ),
  first_byte_ms: Nullable(Type.Number({ description: "Mean time to the first byte of an answer." })),
});

const ModelRoute = Type.Object({
  route: Type.String({ description: "Provider, and its name of the model." }),
  weight: Nullable(
    Type.Integer({ description: "Relative frequency of being tried first; null if only the order counts." }),
  ),
  prices: PricesByClass,
  health: Nullable(RouteHealth),
});
export type ModelRoute = Static<typeof ModelRoute>;

export const AdminModel = Type.Object({
  ...Model.properties,
  playground: Type.Boolean({ description: "True if guests of the playground may use the model." }),
  prices: PricesByClass,
  routes: Nullable(Type.Array(ModelRoute, { description: "Routes in configured order; null for members." })),
});
export type AdminModel = Static<typeof AdminModel>;
export const AdminModelList = Type.Object({ object: Type.Literal("list"), data: Type.Array(AdminModel) });
export type AdminModelList = Static<typeof AdminModelList>;
