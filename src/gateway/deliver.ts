import type { AnswerHead, AnswerPiece } from "../api/answer.ts";
import { AnswerFold } from "../api/answer-fold.ts";
import type { Delta, ToolCallDelta } from "../api/chat/completion.ts";
import type { EventEnd } from "../credits/facts.ts";
import { isOwnCut, UpstreamError } from "../errors.ts";
import type { UpstreamChunk } from "../providers/provider.ts";
import { type Admission, intentOf } from "./admit.ts";
import { type AnswerSink, type Folded, headOf, STORED_CHARACTERS_MAX } from "./answer.ts";
import { type Answered, noteEnd, type Unanswered } from "./attempt.ts";
import { checkpointOf } from "./charge.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import { Meter, type MeterReading } from "./meter.ts";
import type { Plan } from "./plan.ts";

/** The delivery of an answer: how it ended, and what was sent of it. */
export interface Delivery {
  end: Exclude<EventEnd, "recovered">;
  /** Undefined for a complete answer. */
  failure: unknown;
  /** Undefined where the answer did not begin. */
  head: AnswerHead | undefined;
  /** True where pieces of the answer were sent to the client as they arrived. */
  isStreamed: boolean;
  /** Time for which the answer waited until its client had read. */
  waitedMs: number;
  /** From admission to the first piece of the answer; null where there was none. */
  firstTokenMs: number | null;
  meter: MeterReading;
  /** The answer as one message for each choice; undefined where nothing needs it. */
  fold: Folded | undefined;
}

/**
 * Relays an answer to the client and measures it, as far as the hold's lease allows. Notes the end in the upstream's
 * circuit. Never rejects.
 */
export async function deliver(
  gateway: Gateway,
  call: GatewayCall,
  plan: Plan,
  admission: Admission,
  answered: Answered,
  client: AnswerSink,
): Promise<Delivery> {
  const { facts, lease, maxTokens, estimate, admittedAtMs } = admission;
  const { route, answer } = answered;
  const meter = new Meter(maxTokens * estimate.choices);
  // A whole answer is needed where it is stored under an idempotency key or in a conversation.
  const keepsConversation = call.principal.keepsConversations && call.kind === "completion";
  let fold = call.idempotency !== null || keepsConversation ? new AnswerFold() : undefined;
  const completeToolCalls = toolCallCompleter(facts.holdId);
  let head: AnswerHead | undefined;
  let isStreamed = false;
  let firstTokenMs: number | null = null;
  let waitedMs = 0;
  let failure: unknown;
  const passOn = (chunks: readonly UpstreamChunk[]) => {
    // Checked at every write, not only by a timer: after a suspension of the machine the upstream's data may come first.
    lease.require();
    firstTokenMs ??= gateway.clock() - admittedAtMs;
    const pieces = completeToolCalls(chunks);
    meter.add(pieces);
    // Speech may have hundreds of megabytes, of which nothing is stored.
    if (!keepsConversation && meter.dataCharacters > STORED_CHARACTERS_MAX) fold = undefined;
    fold?.add(pieces);
    const drained = client.push(pieces, meter.choices.hasFinished(1));
    if (drained === undefined) return lease.ready();
    const fromMs = gateway.clock();
    return drained.then(() => {
      waitedMs += gateway.clock() - fromMs;
      return lease.ready();
    });
  };
  try {
    const ignored = [...plan.ignored, ...(answer.ignored ?? []), ...call.ignored];
    head = headOf(gateway, admission, plan, answered, ignored);
    client.open(head);
    isStreamed = client.streams;
    if (isStreamed) {
      gateway.ledger.checkpoint(facts.holdId, () => {
        const admitted = { ...admission, facts: { ...facts, intent: intentOf(call) } };
        return checkpointOf(plan.model, route, admitted, meter);
      });
    }
    await relay(answer.chunks[Symbol.asyncIterator](), passOn);
    lease.require();
    if (!meter.choices.hasFinished(1)) throw new UpstreamError("failed", "The answer ended without a finish reason");
  } catch (error) {
    failure = isOwnCut(call.signal.reason) ? call.signal.reason : error;
  }
  noteEnd(gateway, call, answered, failure);
  return { end: endOf(failure, call.signal), failure, head, isStreamed, waitedMs, firstTokenMs, meter, fold };
}

type Take = (chunks: readonly UpstreamChunk[]) => Promise<void> | undefined;

/** Passes on an answer; a failure closes the upstream's connection. Unlike `for await`, keeps no chunks while `take` waits. */
async function relay(reads: AsyncIterator<readonly UpstreamChunk[]>, take: Take): Promise<void> {
  const pass = ({ done, value }: IteratorResult<readonly UpstreamChunk[]>) => (done === true ? "end" : take(value));
  try {
    for (let next = pass(await reads.next()); next !== "end"; next = pass(await reads.next())) {
      if (next !== undefined) await next;
    }
  } catch (error) {
    // The first failure is reported, even if closing the connection fails too.
    await reads.return?.().catch(() => undefined);
    throw error;
  }
}

/** Returns the delivery of a request that no upstream answered. */
export function undelivered(
  { signal }: GatewayCall,
  { maxTokens, estimate }: Admission,
  { failure: error, received }: Unanswered,
): Delivery {
  const meter = new Meter(maxTokens * estimate.choices);
  meter.add(received);
  const failure = isOwnCut(signal.reason) ? signal.reason : error;
  const nothing = { head: undefined, isStreamed: false, waitedMs: 0, firstTokenMs: null, fold: undefined };
  return { end: endOf(failure, signal), failure, ...nothing, meter };
}

/** Tells whose end it was: an answer that the service itself ends was left neither by its client nor by its upstream. */
function endOf(failure: unknown, signal: AbortSignal): Delivery["end"] {
  if (failure === undefined) return "complete";
  if (signal.aborted && !isOwnCut(failure)) return "client_disconnected";
  if (!(failure instanceof UpstreamError)) return "service_failed";
  return failure.failure === "timeout" ? "timed_out" : "upstream_failed";
}

/**
 * Returns a function that completes the tool calls in pieces of one answer as OpenAI's clients need them: the first piece of each
 * call has `type` and an `id` that is unique in the answer, and later pieces have none. Upstreams omit ids or repeat one; the ids
 * that are made instead contain the answer's own id, a UUID, so that they are unique among answers.
 */
export function toolCallCompleter(answerId: string) {
  /** The places of the calls so far, which are the index of each after that of a further choice, and the ids: few answers have any. */
  let known: { places: Set<string>; ids: Set<string> } | undefined;
  // Short, because OpenAI accepts ids of at most 40 characters.
  const idFor = (place: string) => `call_${BigInt(`0x${answerId.replaceAll("-", "")}`).toString(36)}_${place}`;
  const completed = (call: ToolCallDelta, choice = 0): ToolCallDelta => {
    const { index, id, type: _type, function: called, ...rest } = call;
    const place = choice === 0 ? `${index}` : `${choice}_${index}`;
    known ??= { places: new Set(), ids: new Set() };
    const { places, ids } = known;
    if (places.has(place)) return { index, ...(called && { function: called }), ...rest };
    places.add(place);
    const unique = id !== undefined && id !== "" && !ids.has(id) ? id : idFor(place);
    ids.add(unique);
    return { index, id: unique, type: "function", function: { name: "", arguments: "", ...called }, ...rest };
  };
  return (pieces: readonly AnswerPiece[]): readonly AnswerPiece[] => {
    if (!pieces.some(({ delta }) => delta?.tool_calls !== undefined)) return pieces;
    return pieces.map((piece) => {
      const calls = piece.delta?.tool_calls;
      if (calls === undefined) return piece;
      const delta: Delta = { ...piece.delta, tool_calls: calls.map((call) => completed(call, piece.index)) };
      return { ...piece, delta };
    });
  };
}
