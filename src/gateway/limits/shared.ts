import type { ApiError } from "../../errors.ts";
import {
  exceeded,
  type LimitEntry,
  type LimitedRequest,
  type LimitKey,
  type LimitState,
  type LimitsStatus,
  type RateLimiter,
  shownLimits,
  tightestOf,
  tooManyAtOnce,
  type WindowUse,
  windowUses,
} from "../limits.ts";
import { LocalLimiter } from "./local.ts";
import { RedisNode, type RedisNodeOptions } from "./redis.ts";
import type { Return, Step, StepOutcome } from "./script.ts";

export interface SharedLimiterOptions extends Omit<RedisNodeOptions, "running" | "answerTimeoutMs"> {
  answerTimeoutMs?: number;
  /** Milliseconds since 1970. */
  clock: () => number;
}

const ANSWER_TIMEOUT_MS = 500;
/** The number of nodes that a process assumes until it has reached Redis for the first time. */
const NODES_ASSUMED = 10;
/** A request is counted at the second tick after its beginning, unless it was admitted or refused before. */
const TICK_MS = 1_000;
const REQUESTS_PER_MESSAGE_MAX = 500;

interface SharedRequest extends LimitedRequest {
  step: Step;
  /** Takes the outcome of the request's count, which is on its way. */
  countWith(outcome: Promise<StepOutcome | undefined>): Promise<LimitState>;
}

/**
 * Counts in Redis, together with other nodes: a request in one round trip, with its admission or with its refusal. This
 * process also counts by itself everything that it admits. While Redis is away it applies its share of each limit to
 * these counts.
 */
export class SharedLimiter implements RateLimiter {
  readonly #clock: () => number;
  readonly #answerTimeoutMs: number;
  readonly #local: LocalLimiter;
  readonly #node: RedisNode;
  /** Windows of requests that are used up. Their requests are refused before the body is read, without Redis. */
  readonly #usedUp = new Map<string, { used: number; endsAtMs: number; state: LimitState }>();
  #begun = new Set<SharedRequest>();
  #begunBefore = new Set<SharedRequest>();
  #tick: NodeJS.Timeout | undefined;

  constructor({ answerTimeoutMs = ANSWER_TIMEOUT_MS, ...options }: SharedLimiterOptions) {
    this.#clock = options.clock;
    this.#answerTimeoutMs = answerTimeoutMs;
    this.#local = new LocalLimiter(options.clock);
    this.#node = new RedisNode({ ...options, answerTimeoutMs, running: () => this.#local.running() });
  }

  async start(): Promise<void> {
    this.#tick = setInterval(() => this.#countBegun(), TICK_MS).unref();
    await this.#node.start();
  }

  begin(keys: readonly LimitKey[]): LimitedRequest {
    const request = this.#request(keys);
    if (!this.#node.isJoined) return this.#request(keys, this.#counted(request.step, undefined));
    this.#refuseUsedUp(request.step.uses);
    this.#begun.add(request);
    return request;
  }

  async countRequest(keys: readonly LimitKey[]): Promise<LimitState> {
    return this.#request(keys).counted();
  }

  enterExport(key: LimitKey): () => void {
    return this.#local.enterExport(key);
  }

  partOf(limit: number): number {
    if (this.#node.isJoined) return limit;
    return Math.max(1, Math.floor(limit / (this.#node.nodes ?? NODES_ASSUMED)));
  }

  status(): LimitsStatus {
    return { mode: this.#node.isJoined ? "shared" : "local", nodes: this.#node.nodes ?? NODES_ASSUMED };
  }

  async stop(): Promise<void> {
    clearInterval(this.#tick);
    await this.#node.stop();
  }

  /** Returns a request that is counted when its admission or its error needs it. `state`: it was counted already. */
  #request(keys: readonly LimitKey[], state?: LimitState): SharedRequest {
    const step: Step = { uses: windowUses("requests", keys, 1), concurrent: [], followsPrevious: false };
    let counting = state && Promise.resolve(state);
    const request: SharedRequest = {
      step,
      countWith: (outcome) => {
        for (const begun of [this.#begun, this.#begunBefore]) begun.delete(request);
        counting = outcome.then((found) => this.#counted(step, found));
        // The client may be gone, so that nobody waits for a refusal.
        counting.catch(() => undefined);
        return counting;
      },
      counted: () => counting ?? request.countWith(this.#send([step]).then((outcomes) => outcomes?.[0])),
      admit: async ({ uses, tokens, concurrent }) => {
        const isCounted = counting !== undefined;
        if (isCounted) await counting;
        const admission = { uses, concurrent, followsPrevious: !isCounted };
        const sent = this.#send(isCounted ? [admission] : [step, admission]);
        if (!isCounted) void request.countWith(sent.then((outcomes) => outcomes?.[0]));
        return this.#admitted(await request.counted(), tokens, admission, (await sent)?.at(-1));
      },
    };
    return request;
  }

  /** Sends steps in one round trip. Resolves with undefined while Redis is away. */
  async #send(steps: readonly Step[]): Promise<readonly StepOutcome[] | undefined> {
    return (await this.#node.count(steps))?.outcomes;
  }

  /** Returns the state of a request that Redis has counted, or counts it while Redis is away. Throws rate_limit_exceeded. */
  #counted(step: Step, outcome: StepOutcome | undefined): LimitState {
    const { uses } = step;
    if (outcome === undefined) return tightestOf(this.#local.take(this.#partsOf(uses), []).states);
    if (outcome.refused !== undefined) throw this.#refusal(step, outcome);
    this.#local.record(uses, []);
    return tightestOf(outcome.windows.map(({ state }) => state));
  }

  /** Returns the entry of a request whose admission Redis has decided, or decides it while Redis is away. Throws rate_limit_exceeded. */
  #admitted(counted: LimitState, tokens: number, step: Step, outcome: StepOutcome | undefined): LimitEntry {
    const { uses, concurrent } = step;
    if (outcome?.refused !== undefined) throw this.#refusal(step, outcome);
    const local =
      outcome === undefined
        ? this.#local.take(this.#partsOf(uses), this.#partsOf(concurrent))
        : this.#local.record(uses, concurrent);
    if (outcome === undefined) this.#node.changeRunning(concurrent, 1);
    const states = outcome?.windows.map(({ state }) => state) ?? local.states;
    const leave = (tokensUsed: number) => {
      const amount = tokens - tokensUsed;
      local.leave(amount);
      if (outcome !== undefined && amount > 0) this.#node.giveBack(returnsOf(uses, outcome, amount));
      this.#node.changeRunning(concurrent, -1);
    };
    return { ...shownLimits(counted, states), leave };
  }

  #refuseUsedUp(uses: readonly WindowUse[]): void {
    const nowMs = this.#clock();
    for (const use of uses) {
      const known = this.#usedUp.get(use.key);
      if (known === undefined || known.used < use.limit) continue;
      const leftMs = known.endsAtMs - nowMs;
      // A window that ends too late was remembered before the clock was set back.
      if (leftMs <= 0 || leftMs > known.state.windowSeconds * 1000) continue;
      throw exceeded(use, { ...known.state, limit: use.limit, resetSeconds: Math.ceil(leftMs / 1000) });
    }
  }

  #refusal({ uses, concurrent }: Step, { refused = 0, windows }: StepOutcome): ApiError {
    const use = uses[refused];
    const window = windows[refused];
    if (use === undefined || window === undefined) {
      const full = concurrent[refused - uses.length];
      if (full === undefined) throw new Error("Redis refused a step at a limit that the step does not have");
      return tooManyAtOnce(full);
    }
    const { used, leftMs, state } = window;
    // Less by the longest time that the answer was on its way.
    const endsAtMs = this.#clock() + leftMs - this.#answerTimeoutMs;
    if (use.kind === "requests") this.#usedUp.set(use.key, { used, endsAtMs, state });
    return exceeded(use, state);
  }

  #partsOf<Limited extends LimitKey>(limits: readonly Limited[]): Limited[] {
    return limits.map((limited) => ({ ...limited, limit: this.partOf(limited.limit) }));
  }

  /** Counts requests that were neither admitted nor refused for a while, such as those with a slow body. */
  #countBegun(): void {
    const nowMs = this.#clock();
    for (const [key, { endsAtMs }] of this.#usedUp) if (endsAtMs <= nowMs) this.#usedUp.delete(key);
    const requests = [...this.#begunBefore];
    this.#begunBefore = this.#begun;
    this.#begun = new Set();
    for (let from = 0; from < requests.length; from += REQUESTS_PER_MESSAGE_MAX) {
      const batch = requests.slice(from, from + REQUESTS_PER_MESSAGE_MAX);
      const outcomes = this.#send(batch.map(({ step }) => step));
      for (const [index, request] of batch.entries()) request.countWith(outcomes.then((found) => found?.[index]));
    }
  }
}

/** Returns what gives unused tokens back to the windows that they were taken from. */
function returnsOf(uses: readonly WindowUse[], { windows }: StepOutcome, amount: number): Return[] {
  const returns = windows.map(({ endsAtMs }, index) => ({ ...(uses[index] as WindowUse), amount, endsAtMs }));
  return returns.filter(({ kind }) => kind !== "requests");
}
