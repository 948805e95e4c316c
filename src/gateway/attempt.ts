import { type CatalogModel, type Route, upstreamOf } from "../catalog/model.ts";
import type { Attempt } from "../credits/facts.ts";
import { isOwnCut, UpstreamError, type UpstreamFailure } from "../errors.ts";
import type { Provider, ProviderAnswer, UpstreamChunk } from "../providers/provider.ts";
import type { Admission } from "./admit.ts";
import type { Circuit, CircuitChange } from "./circuit.ts";
import { CONSEQUENCES } from "./failures.ts";
import type { Gateway, GatewayCall, UpstreamCall } from "./gateway.ts";
import { inOrder, type Plan } from "./plan.ts";

interface Calls {
  /** The route that was called last; the plan's first one where none was called. */
  route: Route;
  /** Time of the last call, in milliseconds since 1970; null where no upstream was called. */
  calledAtMs: number | null;
  /** All calls, apart from one that failed by a defect. */
  made: readonly UpstreamCall[];
}

export interface Answered extends Calls {
  answer: ProviderAnswer;
  circuit: Circuit;
}

/** Calls that all failed, or that were ended before an answer began. */
export interface Unanswered extends Calls {
  answer: null;
  failure: unknown;
  /** Pieces of an answer that had arrived when the client disconnected. */
  received: readonly UpstreamChunk[];
}

/**
 * Calls the routes of a plan until one answers. A route whose circuit is open for the organization, or that asked for a
 * pause, is skipped; another one is tried only while the client has received nothing, for failures that another upstream may not have, and
 * within the retry budget. Never rejects.
 */
export async function attempt(
  gateway: Gateway,
  call: GatewayCall,
  plan: Plan,
  admission: Admission,
): Promise<Answered | Unanswered> {
  let calls: Calls = { route: admission.routes[0], calledAtMs: null, made: [] };
  let failure: UpstreamError | undefined;
  let refusal: UpstreamError | undefined;
  try {
    call.signal.throwIfAborted();
    const { organizationId } = call.principal;
    const routes = inOrder(admission.routes, gateway.random, plan.isPreferred);
    const isOnlyRoute = routes.length === 1;
    gateway.retryBudget.count(organizationId, plan.model.id, gateway.clock());
    for (let turn = 0; ; turn += 1) {
      const route = routes[turn] ?? (turn === routes.length ? routeToRepeat(calls, failure) : undefined);
      if (route === undefined) throw failure ?? refusal ?? noRoute(plan.model);
      // Even the lower bound of the prompt's length exceeds its context window.
      if (routes.length > 1 && admission.estimate.least >= (route.contextWindow ?? Number.POSITIVE_INFINITY)) continue;
      if (failure !== undefined && !mayFollow(failure, calls.route, route)) continue;
      // The body for the upstream is made in this turn.
      if (call.isLarge) await gateway.longTasks.run(organizationId, () => call.signal.throwIfAborted());
      const provider = providerOf(gateway, route);
      const circuit = gateway.circuits.of(route, provider);
      const startedMs = gateway.clock();
      if (!circuit.admits(organizationId, startedMs, isOnlyRoute)) {
        refusal = sooner(refusal, circuit.refusal(organizationId, startedMs, isOnlyRoute));
        continue;
      }
      if (failure !== undefined && !gateway.retryBudget.takes(organizationId, plan.model.id, startedMs)) throw failure;
      const sending = { route, maxTokens: admission.maxTokens, hasOthers: turn + 1 < routes.length };
      const result = await callUpstream(plan, provider, sending, call.signal);
      const nowMs = gateway.clock();
      const outcome = outcomeOf(result, call.signal);
      const { made: before } = calls;
      const made =
        outcome === undefined ? before : [...before, { route, startedMs, outcome, durationMs: nowMs - startedMs }];
      calls = { route, calledAtMs: startedMs, made };
      if (!("failure" in result)) {
        logChange(gateway, organizationId, route, circuit.answered(organizationId, startedMs, nowMs));
        return { route, calledAtMs: startedMs, made, answer: result.answer, circuit };
      }
      if (call.signal.aborted || !(result.failure instanceof UpstreamError)) return { ...calls, ...result };
      failure = result.failure;
      logFailedCall(gateway, call, calls, failure);
      logChange(gateway, organizationId, route, circuit.failed(organizationId, failure, startedMs, nowMs));
    }
  } catch (error) {
    return { ...calls, answer: null, failure: error, received: [] };
  }
}

/** Returns the calls as they are logged and recorded. */
export function attemptsOf({ made }: Pick<Calls, "made">): Attempt[] {
  return made.map(({ route, outcome, durationMs }) => ({ route: upstreamOf(route), outcome, durationMs }));
}

/** Result of a call; undefined for a defect, which is not an attempt's outcome. */
function outcomeOf(
  result: CallResult,
  signal: AbortSignal,
): "answered" | "client_disconnected" | "stopped" | UpstreamFailure | undefined {
  if (!("failure" in result)) return "answered";
  if (signal.aborted) return isOwnCut(signal.reason) ? "stopped" : "client_disconnected";
  return result.failure instanceof UpstreamError ? result.failure.failure : undefined;
}

function providerOf({ providers }: Gateway, { providerId }: Route): Provider {
  const provider = providers.get(providerId);
  if (provider === undefined) throw new Error(`There is no provider '${providerId}'`);
  return provider;
}

function sooner(one: UpstreamError | undefined, other: UpstreamError): UpstreamError {
  return one === undefined || (other.retryAfterSeconds ?? 0) < (one.retryAfterSeconds ?? 0) ? other : one;
}

function noRoute({ id }: CatalogModel): UpstreamError {
  return new UpstreamError("context_length", `No route of ${id} has a context window for this prompt`);
}

/** Returns the only route that was called, where its failure is worth a second call. */
function routeToRepeat({ route, made }: Calls, failure: UpstreamError | undefined): Route | undefined {
  const mayRepeat = failure !== undefined && CONSEQUENCES[failure.failure].next === "elsewhere or again";
  return mayRepeat && made.length === 1 ? route : undefined;
}

function mayFollow({ failure }: UpstreamError, failed: Route, next: Route): boolean {
  const { next: target } = CONSEQUENCES[failure];
  if (target === "larger") return (next.contextWindow ?? 0) > (failed.contextWindow ?? Number.POSITIVE_INFINITY);
  return target !== "nowhere";
}

/** Failures that only the operator can fix. */
const OPERATORS: Partial<Record<UpstreamFailure, string>> = {
  credentials: "an upstream refused the service's own credentials",
  misconfigured: "an upstream has no such model or address",
};

function logFailedCall(
  { log }: Gateway,
  { requestId, principal, request }: GatewayCall,
  calls: Calls,
  error: UpstreamError,
): void {
  const text = OPERATORS[error.failure];
  if (text === undefined) return;
  const { organizationId, tokenId } = principal;
  log.error(
    { requestId, organizationId, tokenId, model: request.model, ...attemptsOf(calls).at(-1), err: error },
    text,
  );
}

/** Notes in the upstream's circuit how an answer that had begun has ended; `failure` is undefined for a complete answer. */
export function noteEnd(
  gateway: Gateway,
  { principal: { organizationId } }: GatewayCall,
  { route, circuit }: Answered,
  failure: unknown,
): void {
  const nowMs = gateway.clock();
  if (failure === undefined) circuit.completed(organizationId, nowMs);
  else if (failure instanceof UpstreamError) {
    logChange(gateway, organizationId, route, circuit.broke(organizationId, failure.failure, nowMs));
  }
}

function logChange({ log }: Gateway, organizationId: string, route: Route, change: CircuitChange): void {
  if (change === undefined) return;
  const fields = { organizationId, route: upstreamOf(route) };
  if (change === "opened") {
    log.warn(
      fields,
      "an upstream fails repeatedly for an organization: only its probes are sent until one is answered",
    );
  } else log.info(fields, "an upstream answers an organization again");
}

type CallResult = { answer: ProviderAnswer } | Pick<Unanswered, "answer" | "failure" | "received">;

/** Time to wait for the first text of a stream before its headers are sent to the client. */
const FIRST_TEXT_WAIT_MS = 10_000;
const ITEMS_BUFFERED_MAX = 100;

/** Calls an upstream; where other routes remain, waits until its answer is unlikely to fail. Never rejects. */
async function callUpstream(
  plan: Pick<Plan, "send" | "isStreamed">,
  provider: Provider,
  { route, maxTokens, hasOthers }: { route: Route; maxTokens: number; hasOthers: boolean },
  signal: AbortSignal,
): Promise<CallResult> {
  try {
    const answer = await plan.send(provider, route, maxTokens);
    if (!hasOthers) return { answer };
    return await awaitBeginning(answer, { isStreamed: plan.isStreamed, signal });
  } catch (error) {
    return { answer: null, failure: error, received: [] };
  }
}

/**
 * Waits until an answer is unlikely to fail: a streamed one until its first text, an unstreamed one until it is complete.
 * Until then another route can still replace it, so this is for every route but the last. Returns the answer to be read
 * from its beginning, or its failure; where the signal is aborted, with the pieces that had arrived.
 */
export async function awaitBeginning(
  answer: ProviderAnswer,
  { isStreamed, signal }: { isStreamed: boolean; signal: AbortSignal },
): Promise<CallResult> {
  const source = answer.chunks[Symbol.asyncIterator]();
  const begun: Read[] = [];
  const late = Promise.withResolvers<undefined>();
  const timer = isStreamed ? setTimeout(late.resolve, FIRST_TEXT_WAIT_MS, undefined) : undefined;
  try {
    for (;;) {
      const next = source.next();
      const item = await Promise.race([next, late.promise]);
      if (item === undefined || item.done === true) {
        // A later read reports the rejection; until then it must not count as unhandled.
        next.catch(() => undefined);
        return { answer: { ...answer, chunks: resume(source, [...begun, next]) } };
      }
      begun.push(item);
      if (isStreamed && (item.value.some(hasText) || begun.length >= ITEMS_BUFFERED_MAX)) {
        return { answer: { ...answer, chunks: resume(source, begun) } };
      }
    }
  } catch (error) {
    return { answer: null, failure: error, received: signal.aborted ? begun.flatMap(({ value }) => value ?? []) : [] };
  } finally {
    clearTimeout(timer);
  }
}

type Read = IteratorResult<readonly UpstreamChunk[], undefined>;

/** Returns an answer from its beginning. Unlike a generator, keeps nothing that was read while a slow client is waited for. */
function resume(
  source: AsyncIterator<readonly UpstreamChunk[], undefined>,
  begun: (Read | Promise<Read>)[],
): AsyncIterableIterator<readonly UpstreamChunk[], undefined> {
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    next: async () => begun.shift() ?? source.next(),
    return: async () => (await source.return?.()) ?? { done: true, value: undefined },
  };
}

function hasText({ delta, finish_reason }: UpstreamChunk): boolean {
  if (finish_reason !== undefined) return true;
  if (delta === undefined) return false;
  const { content, reasoning_content: reasoning, refusal, tool_calls: calls, audio, images } = delta;
  return Boolean(content || reasoning || refusal || calls?.length || audio || images);
}
