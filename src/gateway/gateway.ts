import type { LimitSettings, Principal } from "../api/principal.ts";
import type { ChatCompletionRequest } from "../api/request.ts";
import type { Catalog } from "../catalog/model.ts";
import type { StoreUnavailableError } from "../errors.ts";
import type { ConversationLog } from "../ledger/conversation-log.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Provider } from "../providers/provider.ts";
import type { Log } from "../telemetry/logger.ts";
import type { Circuits } from "./circuits.ts";
import type { Limits, Standing } from "./limits.ts";
import type { OutputRates } from "./output-rates.ts";
import type { RetryBudget } from "./retry-budget.ts";
import type { TokenCounter } from "./token-counter.ts";

/** Bounds of the playground organization, which has no credits to bound it. */
export interface PlaygroundSettings {
  /** For each address. */
  requestsPerMinute: number;
  tokensPerDay: number;
  maxTokens: number;
}

/** What the life of a completion needs of the rest of the service. */
export interface Gateway {
  catalog: Catalog;
  ledger: Pick<Ledger, "hold" | "checkpoint" | "settle" | "release">;
  conversations: Pick<ConversationLog, "add">;
  providers: ReadonlyMap<string, Provider>;
  circuits: Circuits;
  retryBudget: RetryBudget;
  limits: Limits;
  tokenCounter: Pick<TokenCounter, "count">;
  outputRates: OutputRates;
  limitSettings: LimitSettings;
  playground: PlaygroundSettings;
  /** Highest `max_tokens`, also for requests that state none; `model`: each model's own maximum. */
  completionMaxTokens: number | "model";
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  /** A new UUIDv7. */
  newId: () => string;
  log: Log;
}

/** One request for a completion, its caller known and its requests a minute counted. */
export interface CompletionCall {
  principal: Principal;
  request: ChatCompletionRequest;
  requestId: string;
  requestStanding: Standing;
  /** What makes it the same request as an earlier one of its organization; null where the caller names none. */
  idempotency: { key: string; fingerprint: string } | null;
  /** Called once credits are held: from then on it is listed among the requests. */
  onHeld: () => void;
  /** Aborted when the client leaves; by a StoppedError or a StoreUnavailableError when the service cuts it off. */
  signal: AbortSignal;
  /** Aborts the signal. */
  cut(reason: StoreUnavailableError): void;
}
