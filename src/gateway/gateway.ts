import type { LimitSettings, Principal } from "../api/principal.ts";
import type { DecodedRequest, NativeRequest, StatedOutput } from "../api/wire.ts";
import type { Catalog, Route } from "../catalog/model.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { Attempt } from "../credits/facts.ts";
import type { TokenCounts } from "../credits/price.ts";
import type { ErrorCode, StoppedError, StoreUnavailableError } from "../errors.ts";
import type { ConversationLog } from "../ledger/conversation-log.ts";
import type { FairTurns } from "../ledger/fair-queue.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { AnswerRoom, Provider } from "../providers/provider.ts";
import type { Log } from "../telemetry/logger.ts";
import type { AnswerMemory } from "./answer-memory.ts";
import type { OutputRates } from "./charge.ts";
import type { Circuits } from "./circuit.ts";
import type { LimitedRequest, RateLimiter } from "./limits.ts";
import type { Plan } from "./plan.ts";
import type { RetryBudget } from "./retry-budget.ts";
import type { TokenCounter } from "./token-counter.ts";

/** Limits of the playground organization, whose requests are free. */
export interface PlaygroundSettings {
  /** Per client address. */
  requestsPerMinute: number;
  tokensPerDay: number;
  maxTokens: number;
}

export interface Gateway {
  catalog: Catalog;
  ledger: Pick<Ledger, "hold" | "checkpoint" | "settle" | "release">;
  conversations: Pick<ConversationLog, "add">;
  providers: ReadonlyMap<string, Provider>;
  circuits: Circuits;
  retryBudget: RetryBudget;
  limits: RateLimiter;
  tokenCounter: Pick<TokenCounter, "forCharges" | "countPrompt">;
  outputRates: OutputRates;
  /** Divides the memory for long answers among organizations. */
  answerMemory: Pick<AnswerMemory, "roomFor">;
  /** Divides the event loop's time for large bodies and long answers among organizations. */
  longTasks: FairTurns;
  limitSettings: LimitSettings & { newValuesPerMinute: number };
  playground: PlaygroundSettings;
  /**
   * Highest `max_tokens`, also for requests that state none; `model`: each model's own maximum; `clamp`: the same, but a
   * higher one is lowered to it.
   */
  completionMaxTokens: number | "model" | "clamp";
  clock: () => number;
  random: () => number;
  newId: () => string;
  log: Log;
}

/** A request of a known caller, for one kind of answer or any. */
export type GatewayCall<Kind extends DecodedRequest["kind"] = DecodedRequest["kind"]> = CallFacts & AskedFor<Kind>;

/** Distributes over the kinds, so that the kind of a call tells the type of its request. */
type AskedFor<Kind> = Kind extends DecodedRequest["kind"]
  ? Pick<Extract<DecodedRequest, { kind: Kind }>, "kind" | "request">
  : never;

interface CallFacts {
  principal: Principal;
  output: StatedOutput;
  /** The request on its own wire, if upstreams of that wire can take it as it is. */
  native: NativeRequest | undefined;
  /** Returns the wire's name of a field of the internal request. */
  paramOf(param: string): string;
  /** Fields of the request that have no effect. */
  ignored: readonly string[];
  requestId: string;
  /** The trace that upstreams may continue; absent if there is none. */
  traceparent?: string | undefined;
  /** True if work on the prompt takes long, so that the request takes turns with those of other organizations. */
  isLarge: boolean;
  /** The request as the limits count it. */
  limited: LimitedRequest;
  /** Identifies a repetition of an earlier request of the caller; null without an idempotency key. */
  idempotency: { key: string; fingerprint: string } | null;
  /** Recognizes retries of the request. The fingerprint is made when it is first needed. */
  repetition: { isRetry: boolean; fingerprint: () => string } | null;
  /** The most that the request may cost, as it states itself; null where it does not. */
  maxCost: MicroCredits | null;
  /** Called once credits are held: from then on the request is in the request log. */
  onHeld: () => void;
  /** Called once a request that held credits is settled. */
  onSettled: (report: CompletionReport) => void;
  /** Aborted when the client disconnects; with a StoppedError or a StoreUnavailableError when the service ends the request. */
  signal: AbortSignal;
  /** The memory of a long answer. */
  room: AnswerRoom;
  /** Aborts the signal. */
  cut(reason: StoreUnavailableError | StoppedError): void;
}

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
  /** Finish reasons of the choices that have finished. */
  finishReasons: string[];
  /** The charge; null if the hold was released, or could not be settled. */
  charge: { tokens: TokenCounts; amount: MicroCredits } | null;
  /** The provider's own cost, as a decimal number in its own unit. */
  providerCost: string | null;
}

/** A call of an upstream, until its answer began or its failure was known. */
export interface UpstreamCall extends Pick<Attempt, "outcome" | "durationMs"> {
  route: Route;
  startedMs: number;
}
