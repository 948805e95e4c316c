import type { Route } from "../catalog/model.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { Attempt } from "../credits/facts.ts";
import type { TokenCounts } from "../credits/price.ts";
import type { ErrorCode } from "../errors.ts";
import type { Plan } from "./plan.ts";

/** A request that held credits and has ended, for metrics and traces: without prompt and answer. Times are milliseconds since 1970. */
export interface CompletionReport {
  operation: Plan["operation"];
  /** Id of the model in the catalog. */
  model: string;
  /** The route that was called last, or would have been called first. */
  route: Pick<Route, "providerId" | "model">;
  calls: readonly UpstreamCall[];
  startedMs: number;
  admittedMs: number;
  firstTokenAtMs: number | null;
  deliveredMs: number;
  settledMs: number;
  /** Null for a complete answer that is settled. */
  code: ErrorCode | "client_disconnected" | null;
  finishReason: string | null;
  /** The charge; null if the hold was released, or could not be settled. */
  charge: { tokens: TokenCounts; amount: MicroCredits } | null;
  /** The provider's own cost, as a decimal number in its own unit. */
  providerCost: string | null;
}

/** A call of an upstream, until its answer began or its failure was known. */
export interface UpstreamCall extends Pick<Attempt, "outcome" | "durationMs"> {
  route: Route;
  /** Milliseconds since 1970. */
  startedMs: number;
}
