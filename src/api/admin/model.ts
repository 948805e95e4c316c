import { type Static, Type } from "typebox";
import { Model } from "../model.ts";
import { Nullable, PricesByClass, Time } from "./common.ts";

/** What is known of an upstream from the requests that this node sent there since its start. */
const RouteHealth = Type.Object({
  state: Type.Enum(["closed", "open", "half_open"], {
    description: "Of its circuit breaker. Open: it is not called but for a probe now and then.",
  }),
  next_probe_at: Nullable(Time),
  limited_until: Nullable(Time),
  last_failure: Nullable(Type.Object({ failure: Type.String(), at: Time })),
  last_success_at: Nullable(Time),
  recent: Type.Object(
    { successes: Type.Integer(), failures: Type.Integer() },
    { description: "Of the last five minutes." },
  ),
  first_byte_ms: Nullable(Type.Number({ description: "Mean time until an answer began." })),
});

const ModelRoute = Type.Object({
  route: Type.String({ description: "Provider and its own name of the model." }),
  weight: Nullable(Type.Integer({ description: "How often it comes first; null where the order alone counts." })),
  prices: PricesByClass,
  health: Nullable(RouteHealth),
});
export type ModelRoute = Static<typeof ModelRoute>;

export const AdminModel = Type.Object({
  ...Model.properties,
  playground: Type.Boolean({ description: "Whether guests of the playground may use it." }),
  prices: PricesByClass,
  routes: Nullable(Type.Array(ModelRoute, { description: "As the configuration has them; null for a member." })),
});
export type AdminModel = Static<typeof AdminModel>;
export const AdminModelList = Type.Object({ object: Type.Literal("list"), data: Type.Array(AdminModel) });
export type AdminModelList = Static<typeof AdminModelList>;
