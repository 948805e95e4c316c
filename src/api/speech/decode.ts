import type { AnswerHead } from "../answer.ts";
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
    events: audioEvents,
  };
}

/** Returns the encoder of audio. It keeps the last bytes of the upstream until the answer is charged. */
function audioEvents({ headers }: AnswerHead, add: AddEvent): EventEncoder {
  let last = "";
  return {
    isBinary: true,
    keepAlive: "",
    contentType: headers["content-type"],
    push(pieces) {
      for (const { delta } of pieces) {
        const data = delta?.audio?.data;
        if (typeof data !== "string" || data === "") continue;
        add(last);
        last = Buffer.from(data, "base64").toString("latin1");
      }
    },
    close: () => add(last),
    // The connection is cut instead: audio has no place for an error.
    fail: () => {},
  };
}
