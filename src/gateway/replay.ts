import type { CatalogModel } from "../catalog/model.ts";
import type { Replay } from "./admit.ts";
import { pieceOf } from "./answer-fold.ts";
import type { CompletionCall } from "./gateway.ts";
import { endOfAnswer, headOfReplay } from "./head.ts";
import type { KeptAnswer } from "./kept-answer.ts";
import type { AnswerSink } from "./sink.ts";

/** Gives a first answer again, streamed as one piece where it was streamed. */
export function replay(
  call: CompletionCall,
  model: CatalogModel,
  { answer, charged, available, tokenStanding }: Replay,
  sink: AnswerSink,
): void {
  const { message, logprobs, finishReason, tokens, ...head } = JSON.parse(answer) as KeptAnswer;
  sink.open(headOfReplay(call, model, head, { available, tokenStanding }));
  void sink.push([pieceOf(message, logprobs)]);
  sink.close(endOfAnswer({ tokens, charged, available }, finishReason));
}
