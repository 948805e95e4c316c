import type { AnswerHead, AnswerPiece } from "../answer.ts";
import { compileReader } from "../known-fields.ts";
import { refused } from "../validation.ts";
import type { AddEvent, DecodedSpeech, EventEncoder } from "../wire.ts";
import { SpeechRequest } from "./request.ts";

const readRequest = compileReader(SpeechRequest, {
  silent: ["stream_format"],
  refused: { stream_format: refused("speech is sent as audio, not as events. Remove it", "audio") },
});

/** Reads the body of a request of speech. `null` counts as absent. Throws InvalidRequestError. */
export function decodeSpeech(body: unknown): DecodedSpeech {
  const { read: request, unknown } = readRequest(body);
  return {
    kind: "speech",
    request,
    // Nothing is charged as output.
    output: { param: "input", tokens: 0, isLimitedBySetting: false },
    ignored: unknown.names(),
    paramOf: (param) => param,
    events: (head, add) => new AudioEncoder(head, add),
  };
}

/** Writes audio as the upstream sends it, but keeps its last bytes until the answer is charged. */
class AudioEncoder implements EventEncoder {
  readonly isBinary = true;
  readonly keepAlive = "";
  readonly contentType: string | undefined;
  readonly #add: AddEvent;
  #last = "";

  constructor({ headers }: AnswerHead, add: AddEvent) {
    this.contentType = headers["content-type"];
    this.#add = add;
  }

  push(pieces: readonly AnswerPiece[]): void {
    for (const { delta } of pieces) {
      const data = delta?.audio?.data;
      if (typeof data !== "string" || data === "") continue;
      this.#add(this.#last);
      this.#last = Buffer.from(data, "base64").toString("latin1");
    }
  }

  close(): void {
    this.#add(this.#last);
  }

  fail(): void {
    // The connection is cut instead: audio has no place for an error.
  }
}
