import { type Static, Type } from "typebox";

/** Credits of the caller's organization; every amount in credits. */
export const UsageReport = Type.Object({
  object: Type.Literal("usage"),
  organization_id: Type.String(),
  creditsAvailable: Type.Number({ description: "Total, less charges and open holds." }),
  creditsTotal: Type.Number({ description: "All granted credits that have not expired." }),
  creditsUsed: Type.Number(),
  creditsHeld: Type.Number(),
});
export type UsageReport = Static<typeof UsageReport>;
