import { type CatalogModel, type Route, upstreamOf } from "../catalog/model.ts";
import type { Attempt } from "../credits/books.ts";
import { isOwnCut, UpstreamError, type UpstreamFailure } from "../errors.ts";
import type { Provider, ProviderAnswer } from "../providers/provider.ts";
import type { Admission } from "./admit.ts";
import { begun } from "./begin.ts";
import type { Circuit, Turn } from "./circuit.ts";
import { CONSEQUENCES } from "./fallback.ts";
import type { CompletionCall, Gateway } from "./gateway.ts";
import type { Meter } from "./meter.ts";
import { forUpstream, type PreparedRequest } from "./prepare.ts";
import { inOrder } from "./route.ts";

/** What became of one call of an upstream. */
type Outcome = "answered" | "client_left" | "stopped" | UpstreamFailure;

/** Where a completion has come to, upstream. */
export interface Course {
  /** The route that was called last; before that, the first one. */
  route: Route;
  /** When the upstream was called that was called last; null: none was. */
  calledAtMs: number | null;
  /** Of the upstream whose answer has begun. */
  circuit: Circuit | undefined;
  /** Each until its answer began, or its failure was known. */
  attempts: Attempt[];
}

interface Request {
  model: CatalogModel;
  /** Those of the model's that can take the request. */
  routes: readonly Route[];
  prepared: PreparedRequest;
  admission: Admission;
  meter: Meter;
}

/**
 * The answer of the first route that gives one. A route whose circuit is open, or that asked to be left alone, is passed
 * over; another one is tried only while nothing was given to the client, for failures that another upstream may not have,
 * and within the retry budget. Rejects with UpstreamError, or with the signal's reason as soon as the client leaves.
 */
export async function attempt(
  gateway: Gateway,
  call: CompletionCall,
  request: Request,
  course: Course,
): Promise<ProviderAnswer> {
  const routes = inOrder(request.routes, gateway.random);
  let failure: UpstreamError | undefined;
  let refusal: UpstreamError | undefined;
  gateway.retryBudget.count(request.model.id, gateway.clock());
  for (let turn = 0; ; turn += 1) {
    const route = routes[turn] ?? (turn === routes.length ? sameAgain(course, failure) : undefined);
    if (route === undefined) throw failure ?? refusal ?? noRoute(request.model);
    if (routes.length > 1 && isTooSmall(route, request.admission)) continue;
    if (failure !== undefined && !mayFollow(failure, course.route, route)) continue;
    const provider = providerOf(gateway, route);
    const circuit = gateway.circuits.of(route, provider);
    const startedMs = gateway.clock();
    if (!circuit.admits(startedMs)) {
      refusal = sooner(refusal, circuit.refusal(startedMs));
      continue;
    }
    if (failure !== undefined && !gateway.retryBudget.takes(request.model.id, startedMs)) throw failure;
    course.route = route;
    course.calledAtMs = startedMs;
    try {
      const answer = await ask(provider, call, request, route, turn + 1 < routes.length);
      const nowMs = gateway.clock();
      course.circuit = circuit;
      course.attempts.push({ route: upstreamOf(route), outcome: "answered", durationMs: nowMs - startedMs });
      logTurn(gateway, route, circuit.answered(startedMs, nowMs));
      return answer;
    } catch (error) {
      failure = failed(gateway, call, course, circuit, startedMs, error);
    }
  }
}

function providerOf({ providers }: Gateway, { providerId }: Route): Provider {
  const provider = providers.get(providerId);
  if (provider === undefined) throw new Error(`There is no provider '${providerId}'`);
  return provider;
}

/** Of two upstreams that are not to be called now, what the one says that may be called first. */
function sooner(one: UpstreamError | undefined, other: UpstreamError): UpstreamError {
  return one === undefined || (other.retryAfterSeconds ?? 0) < (one.retryAfterSeconds ?? 0) ? other : one;
}

/** Whether a prompt cannot fit there, even by the lower bound of its length. */
function isTooSmall({ contextWindow }: Route, { estimate }: Admission): boolean {
  return contextWindow !== undefined && estimate.least >= contextWindow;
}

function noRoute({ id }: CatalogModel): UpstreamError {
  return new UpstreamError("context_length", `No route of ${id} has a context window for this prompt`);
}

/** The route that alone was called, where it is worth another call. */
function sameAgain({ route, attempts }: Course, failure: UpstreamError | undefined): Route | undefined {
  const isWorthIt = failure !== undefined && CONSEQUENCES[failure.failure].next === "elsewhere or again";
  return isWorthIt && attempts.length === 1 ? route : undefined;
}

/** Whether a route may serve what has failed on another one. */
function mayFollow({ failure }: UpstreamError, failed: Route, next: Route): boolean {
  const { next: way } = CONSEQUENCES[failure];
  if (way === "larger") return (next.contextWindow ?? 0) > (failed.contextWindow ?? Number.POSITIVE_INFINITY);
  return way !== "nowhere";
}

async function ask(
  provider: Provider,
  { signal }: CompletionCall,
  { prepared, admission, meter }: Request,
  route: Route,
  hasOthers: boolean,
): Promise<ProviderAnswer> {
  const request = forUpstream(prepared.request, route, admission.maxTokens);
  const answer = await provider.complete({ request, signal });
  return hasOthers ? begun(answer, { isStreamed: request.stream, signal, meter }) : answer;
}

/** Notes a failed attempt; gives what is to be told of it, or throws where there is nobody to tell. */
function failed(
  gateway: Gateway,
  { signal, requestId, principal, request }: CompletionCall,
  { route, attempts }: Course,
  circuit: Circuit,
  startedMs: number,
  error: unknown,
): UpstreamError {
  const nowMs = gateway.clock();
  const note = (outcome: Outcome) => {
    const durationMs = nowMs - startedMs;
    attempts.push({ route: upstreamOf(route), outcome, durationMs });
    const { organizationId, tokenId } = principal;
    return { requestId, organizationId, tokenId, model: request.model, route: upstreamOf(route), outcome, durationMs };
  };
  if (signal.aborted) {
    note(isOwnCut(signal.reason) ? "stopped" : "client_left");
    throw error;
  }
  if (!(error instanceof UpstreamError)) throw error;
  const { failure } = error;
  const fields = note(failure);
  const text = OPERATORS[failure];
  if (text !== undefined) gateway.log.error({ ...fields, err: error }, text);
  logTurn(gateway, route, circuit.failed(error, startedMs, nowMs));
  return error;
}

/** Failures that only the operator can mend. */
const OPERATORS: Partial<Record<UpstreamFailure, string>> = {
  credentials: "an upstream refused the service's own credentials",
  misconfigured: "an upstream has no such model or address",
};

/** Tells the upstream's circuit how an answer that had begun has ended. */
export function judge(gateway: Gateway, { route, circuit }: Course, failure: unknown): void {
  if (circuit === undefined) return;
  if (failure === undefined) circuit.completed();
  else if (failure instanceof UpstreamError) {
    logTurn(gateway, route, circuit.broke(failure.failure, gateway.clock()));
  }
}

function logTurn({ log }: Gateway, route: Route, turn: Turn): void {
  if (turn === undefined) return;
  const fields = { route: upstreamOf(route) };
  if (turn === "opened") log.warn(fields, "an upstream fails again and again: it is left alone, but for probes");
  else log.info(fields, "an upstream answers again");
}
