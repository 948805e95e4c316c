import { type Static, Type } from "typebox";
import { ListOf } from "./schema.ts";

/** Credits of the caller's organization; every amount in credits. */
export const UsageReport = Type.Object({
  object: Type.Literal("usage"),
  organization_id: Type.String(),
  creditsAvailable: Type.Number({ description: "Total, less charges and open holds." }),
  creditsTotal: Type.Number({ description: "All granted credits that have not expired." }),
  creditsUsed: Type.Number(),
  creditsHeld: Type.Number(),
  creditsSpendable: Type.Number({
    description: "The least of the available credits and of what remains of each budget that covers all requests.",
  }),
  budgets: ListOf("Budgets that cover requests of the token, without those for each model or value of metadata.", {
    id: Type.String(),
    name: Type.String(),
    window: Type.String(),
    coversAll: Type.Boolean({ description: "False if only some requests of the token count in it." }),
    resetsAt: Type.Union([Type.String(), Type.Null()]),
    limit: Type.Number(),
    spent: Type.Number(),
    held: Type.Number(),
    remaining: Type.Number(),
  }),
});
export type UsageReport = Static<typeof UsageReport>;
