import type { Route } from "../catalog/model.ts";
import { ApiError, isOwnCut, StoppedError, StoreUnavailableError, UpstreamError } from "../errors.ts";
import type { Lease } from "../ledger/lease.ts";
import type { ProviderAnswer, UpstreamChunk } from "../providers/provider.ts";
import { admit } from "./admit.ts";
import { attempt, judge } from "./attempt.ts";
import type { CompletionCall, Gateway } from "./gateway.ts";
import { endOfAnswer, headOf } from "./head.ts";
import { KeepingSink } from "./kept-answer.ts";
import { keepConversation } from "./kept-conversation.ts";
import { Meter } from "./meter.ts";
import { refuseAboveSetting } from "./output-bounds.ts";
import { type PreparedRequest, prepare, routesFor } from "./prepare.ts";
import { replay } from "./replay.ts";
import { routeTo } from "./route.ts";
import { delivered, type Ending, type Settlement, settle, totalTokens } from "./settle.ts";
import type { AnswerSink } from "./sink.ts";
import { ToolCallCompleter } from "./tool-calls.ts";
import { toApiError } from "./upstream-errors.ts";

/**
 * The life of one completion, from a checked request to a committed charge. Throws ApiError or StoreUnavailableError
 * where the client can still be told by a status; what breaks later goes into the stream.
 */
export async function complete(gateway: Gateway, call: CompletionCall, client: AnswerSink): Promise<void> {
  refuseAboveSetting(gateway, call.request);
  const model = routeTo(gateway.catalog, call.principal, call.request.model);
  const prepared = prepare(call.request, model);
  const routes = routesFor(gateway, model, prepared.request);
  const [route] = routes;
  const admission = await admit(gateway, call, model, route, prepared.request);
  if ("answer" in admission) return replay(call, model, admission, client);
  call.onHeld();
  const sink = sinkOf(call, client);
  const meter = new Meter(admission.maxTokens);
  const ending = beginning(route, sink);
  const answered = { model, request: prepared.request, admission, meter, ending };
  const admittedMs = gateway.clock();
  admission.lease.onOver(call.cut);
  gateway.ledger.checkpoint(admission.facts.holdId, () => delivered(answered));
  let failure: unknown;
  let settlement: Settlement | undefined;
  try {
    if (call.signal.aborted) throw call.signal.reason;
    const answer = await attempt(gateway, call, { model, routes, prepared, admission, meter }, ending);
    sink.open(headOf(gateway, call, model, ending.route, ignoredOf(prepared, answer), admission));
    ending.isStreamed = sink.streams;
    const { lease, facts } = admission;
    await relay(answer, { toolCalls: new ToolCallCompleter(facts.holdId), meter, lease, sink }, () => {
      ending.firstTokenMs = gateway.clock() - admittedMs;
    });
  } catch (error) {
    failure = isOwnCut(call.signal.reason) ? call.signal.reason : error;
    ending.end = endOf(failure, call.signal);
    ending.failure = ending.end === "client_left" ? null : publicError(failure).code;
  }
  judge(gateway, ending, failure);
  try {
    settlement = await settle(gateway, answered, sink);
  } catch (error) {
    failure = error;
  } finally {
    admission.leave(settlement === undefined ? 0 : totalTokens(settlement.tokens));
  }
  if (call.principal.keepsConversations) {
    const isWhole = failure === undefined && settlement !== undefined;
    keepConversation(gateway, call, admission, { sink, meter, isStreamed: ending.isStreamed, isWhole });
  }
  conclude(gateway, call, sink, { failure, ending, settlement, meter });
}

/** An answer is remembered only where somebody wants it again. */
function sinkOf({ idempotency, principal }: CompletionCall, client: AnswerSink): AnswerSink {
  const hasKey = idempotency !== null;
  return hasKey || principal.keepsConversations ? new KeepingSink(client, { hasKey }) : client;
}

/** Hints that the model does not take, and those that only the upstream's wire turned out not to take. */
function ignoredOf({ ignored }: PreparedRequest, answer: ProviderAnswer): readonly string[] {
  return answer.ignored === undefined ? ignored : [...ignored, ...answer.ignored];
}

function beginning(route: Route, { streams }: AnswerSink): Ending {
  const course = { route, calledAtMs: null, circuit: undefined, attempts: [] };
  return { ...course, end: "complete", isStream: streams, isStreamed: false, firstTokenMs: null, failure: null };
}

interface Relay {
  toolCalls: ToolCallCompleter;
  meter: Meter;
  lease: Lease;
  sink: AnswerSink;
}

/** Passes an answer on, as far as the hold's lease allows: rejects with StoreUnavailableError where that is over. */
async function relay(
  answer: ProviderAnswer,
  { toolCalls, meter, lease, sink }: Relay,
  begun: () => void,
): Promise<void> {
  let isFirst = true;
  const passOn = ({ done, value }: IteratorResult<readonly UpstreamChunk[]>) => {
    // At every write, not by a timer alone: after the machine was suspended the upstream's data may come first.
    lease.require();
    if (done === true) return "end";
    if (isFirst) begun();
    isFirst = false;
    const chunks = toolCalls.complete(value);
    meter.add(chunks);
    return sink.push(chunks);
  };
  const reads = answer.chunks[Symbol.asyncIterator]();
  try {
    // Unlike `for await`, this keeps no chunks in a variable while a slow client is waited for.
    for (let next = passOn(await reads.next()); next !== "end"; next = passOn(await reads.next())) {
      if (next !== undefined) await next;
      const ready = lease.ready();
      if (ready !== undefined) await ready;
    }
  } catch (error) {
    // Closes the connection. Where that fails too, the first failure is the one to report.
    await reads.return?.().catch(() => undefined);
    throw error;
  }
  if (meter.finishReason === undefined) throw new UpstreamError("failed", "The answer ended without a finish reason");
}

/** An answer that the service itself cuts has failed: its client has not disconnected. */
function endOf(error: unknown, signal: AbortSignal): Ending["end"] {
  if (signal.aborted && !isOwnCut(error)) return "client_left";
  return error instanceof UpstreamError && error.failure === "timeout" ? "timed_out" : "upstream_failed";
}

interface Conclusion {
  failure: unknown;
  ending: Ending;
  settlement: Settlement | undefined;
  meter: Meter;
}

/** Tells the client how it ended, where there is still one. */
function conclude(gateway: Gateway, call: CompletionCall, sink: AnswerSink, conclusion: Conclusion): void {
  const { failure, ending, settlement, meter } = conclusion;
  if (failure === undefined && settlement !== undefined) {
    sink.close(endOfAnswer(settlement, meter.finishReason));
    return;
  }
  const error = publicError(failure);
  logFailure(gateway, call, error, ending);
  // Nobody listens any more where the client left or the connection was closed by a stop.
  if (call.signal.aborted && !(call.signal.reason instanceof StoreUnavailableError)) return;
  if (!ending.isStreamed) throw error;
  sink.fail(error);
}

function publicError(failure: unknown): ApiError {
  if (failure instanceof ApiError) return failure;
  if (failure instanceof UpstreamError) return toApiError(failure);
  if (failure instanceof StoreUnavailableError) return new ApiError("store_unavailable", undefined, { cause: failure });
  if (failure instanceof StoppedError) return new ApiError("overloaded", undefined, { cause: failure });
  return new ApiError("internal_error", undefined, { cause: failure });
}

/** The code is in the access log; this line adds which upstreams were tried, or where in the code it failed. */
function logFailure(
  { log }: Gateway,
  { requestId, principal, request }: CompletionCall,
  error: ApiError,
  ending: Ending,
) {
  const { end, attempts } = ending;
  const { organizationId, tokenId } = principal;
  const fields = { requestId, organizationId, tokenId, model: request.model, code: error.code, end, attempts };
  if (end === "client_left") log.debug(fields, "the client disconnected");
  else if (error.code === "internal_error") {
    log.error({ ...fields, defect: error.cause }, "a completion failed inside the service");
  } else if (error.status < 500) log.debug(fields, "an upstream refused a completion");
  else log.warn(fields, "a completion failed");
}
