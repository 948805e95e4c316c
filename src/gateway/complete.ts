import type { CatalogModel } from "../catalog/model.ts";
import { NO_TOKENS, tokenTotals } from "../credits/price.ts";
import { isOwnCut } from "../errors.ts";
import { admit, type Replay } from "./admit.ts";
import { type AnswerSink, headOfReplay, type StoredAnswer } from "./answer.ts";
import { attempt, attemptsOf } from "./attempt.ts";
import { deliver, undelivered } from "./deliver.ts";
import { publicError } from "./failures.ts";
import type { CompletionReport, Gateway, GatewayCall } from "./gateway.ts";
import { planCompletion } from "./kinds/completion.ts";
import { planEmbedding } from "./kinds/embedding.ts";
import { planImages } from "./kinds/image.ts";
import { planSpeech, planTranscription } from "./kinds/task.ts";
import type { Plan } from "./plan.ts";
import { type Completed, endOfAnswer, type Settlement, settle } from "./settle.ts";

/**
 * Runs one request of any kind, from its plan to a committed charge. Each step takes the values of the steps before it
 * and returns its own. Throws ApiError or StoreUnavailableError while the client can still receive a status; a later
 * failure is sent in the stream.
 */
export async function complete(gateway: Gateway, call: GatewayCall, client: AnswerSink): Promise<void> {
  const startedMs = gateway.clock();
  const plan = planFor(gateway, call);
  const admission = await admit(gateway, call, plan);
  if ("answer" in admission) return replay(call, plan.model, admission, client);
  call.onHeld();
  admission.lease.onOver(call.cut);
  const upstream = await attempt(gateway, call, plan, admission);
  const delivery =
    upstream.answer === null
      ? undelivered(call, admission, upstream)
      : await deliver(gateway, call, plan, admission, upstream, client);
  const completed = { plan, admission, upstream, delivery };
  const deliveredMs = gateway.clock();
  const outcome = await conclude(gateway, call, completed);
  call.onSettled(reportOf(completed, outcome, { startedMs, deliveredMs, settledMs: gateway.clock() }));
  keepConversation(gateway, call, completed, outcome);
  const closing = respond(gateway, call, completed, outcome, client);
  if (closing !== undefined) await closing;
}

/** Returns the plan of a request of its kind. Everything after the plan is the same for all kinds. */
function planFor(gateway: Gateway, call: GatewayCall): Plan {
  if (call.kind === "image") return planImages(gateway, call);
  if (call.kind === "speech") return planSpeech(gateway, call);
  if (call.kind === "transcription") return planTranscription(gateway, call);
  return call.kind === "embedding" ? planEmbedding(gateway, call) : planCompletion(gateway, call);
}

/** The end of a request: its committed charge, and the failure of the answer or of its settlement. */
interface Outcome {
  settlement: Settlement | undefined;
  failure: unknown;
}

/** Settles a request and ends its admission. Never rejects. */
async function conclude(gateway: Gateway, call: GatewayCall, completed: Completed): Promise<Outcome> {
  const { admission, delivery } = completed;
  let settlement: Settlement | undefined;
  try {
    settlement = await settle(gateway, call, completed);
    return { settlement, failure: delivery.failure };
  } catch (failure) {
    return { settlement: undefined, failure };
  } finally {
    const { input, output } = tokenTotals(settlement?.tokens ?? NO_TOKENS);
    admission.leave(input + output);
  }
}

/** Returns the report of a request that has been settled, or could not be. */
function reportOf(
  { plan, admission, upstream, delivery }: Completed,
  { settlement, failure }: Outcome,
  times: Pick<CompletionReport, "startedMs" | "deliveredMs" | "settledMs">,
): CompletionReport {
  const { end, firstTokenMs, meter } = delivery;
  return {
    operation: plan.operation,
    model: plan.model.id,
    route: upstream.route,
    calls: upstream.made,
    ...times,
    admittedMs: admission.admittedAtMs,
    firstTokenAtMs: firstTokenMs === null ? null : admission.admittedAtMs + firstTokenMs,
    code:
      end === "client_disconnected" ? "client_disconnected" : failure === undefined ? null : publicError(failure).code,
    finishReasons: meter.choices.reasons.filter((reason) => reason !== null),
    charge: settlement?.ended === undefined ? null : { tokens: settlement.tokens, amount: settlement.charged },
    providerCost: meter.providerRecord.providerCost,
  };
}

/** Queues a conversation to be stored, with what the client has received: all or nothing of an answer that is not streamed. */
function keepConversation(
  { conversations }: Gateway,
  { principal, kind, request }: GatewayCall,
  { admission: { facts }, delivery: { fold, isStreamed, meter } }: Completed,
  { failure }: Outcome,
): void {
  if (!principal.keepsConversations || kind !== "completion") return;
  const { organizationId, holdId } = facts;
  const isWhole = failure === undefined;
  const finishReason = isWhole ? (meter.choices.reasons[0] ?? "stop") : null;
  const answer = () => {
    if (fold === undefined || !(isStreamed || isWhole)) return null;
    return { message: fold.message(), finish_reason: finishReason };
  };
  conversations.add({ organizationId, holdId, request, answer });
}

/** Ends the client's answer, or logs the failure and reports it to a client that is still connected. */
function respond(
  { log }: Gateway,
  call: GatewayCall,
  completed: Completed,
  { settlement, failure }: Outcome,
  client: AnswerSink,
): Promise<void> | undefined {
  const { end, isStreamed, meter } = completed.delivery;
  const { reasons } = meter.choices;
  if (failure === undefined && settlement !== undefined) return client.close(endOfAnswer(settlement, reasons));
  const error = publicError(failure);
  // The code is in the access log; this line adds the upstreams that were tried, or the place of the defect.
  const { requestId, principal, request } = call;
  const { organizationId, tokenId } = principal;
  const attempts = attemptsOf(completed.upstream);
  const fields = { requestId, organizationId, tokenId, model: request.model, code: error.code, end, attempts };
  if (end === "client_disconnected") log.debug(fields, "the client disconnected");
  else if (error.code === "internal_error") {
    log.error({ ...fields, defect: error.cause }, "a request failed inside the service");
  } else if (error.status < 500) log.debug(fields, "an upstream refused a request");
  else log.warn(fields, "a request failed");
  if (call.signal.aborted && !isOwnCut(call.signal.reason)) return undefined;
  if (!isStreamed) throw error;
  client.fail(error);
  return undefined;
}

/** Sends a stored answer again, as one piece where it is streamed. */
function replay(
  call: GatewayCall,
  model: CatalogModel,
  { answer, charged, available, ...limits }: Replay,
  client: AnswerSink,
): Promise<void> | undefined {
  const { pieces, reasons, tokens, ended, ...head } = JSON.parse(answer) as StoredAnswer;
  const { input: promptTokens } = tokenTotals(tokens);
  client.open({ ...headOfReplay(call, model, head, { available, ...limits }), promptTokens });
  void client.push(pieces, true);
  return client.close(endOfAnswer({ tokens, charged, available, ended }, reasons));
}
