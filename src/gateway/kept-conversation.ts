import type { Admission } from "./admit.ts";
import type { CompletionCall, Gateway } from "./gateway.ts";
import { KeepingSink } from "./kept-answer.ts";
import type { Meter } from "./meter.ts";
import type { AnswerSink } from "./sink.ts";

interface Ended {
  sink: AnswerSink;
  meter: Meter;
  /** Whether pieces of the answer were sent as they came. */
  isStreamed: boolean;
  /** Whether the answer is complete and charged. */
  isWhole: boolean;
}

/** Hands over what was asked, and what the client has of the answer: of one that is not streamed, all or nothing. */
export function keepConversation(
  { conversations }: Gateway,
  { request }: CompletionCall,
  { facts }: Admission,
  { sink, meter, isStreamed, isWhole }: Ended,
): void {
  const { organizationId, holdId } = facts;
  const finishReason = isWhole ? (meter.finishReason ?? "stop") : null;
  const answer = () => {
    if (!(sink instanceof KeepingSink) || !(isStreamed || isWhole)) return null;
    return { message: sink.message(), finish_reason: finishReason };
  };
  conversations.add({ organizationId, holdId, request, answer });
}
