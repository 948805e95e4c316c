import { expect, test } from "vitest";
import type { HttpBody } from "../http/exchange.ts";
import { readSpeech } from "./tasks.ts";

/** Returns an answer with these bytes, each as a read of its own. */
function answerOf(bytes: readonly Buffer[], contentType = "audio/mpeg") {
  const left = [...bytes];
  let isDestroyed = false;
  const body: HttpBody = {
    read: async () => {
      const next = left.shift();
      return next && [next];
    },
    finish: () => {},
    destroy: () => {
      isDestroyed = true;
    },
  };
  return { answer: { status: 200, headers: { "content-type": contentType }, body }, isDestroyed: () => isDestroyed };
}

test("Audio that arrives in pieces of any length is the same as one base64 text, and as its own pieces.", async () => {
  const sound = Buffer.from(Array.from({ length: 257 }, (_, at) => at % 256));
  for (const length of [1, 2, 3, 7, 256, 257]) {
    const pieces = Array.from({ length: Math.ceil(257 / length) }, (_, at) =>
      sound.subarray(at * length, (at + 1) * length),
    );
    const { answer } = answerOf(pieces);
    let joined = "";
    let decoded = Buffer.alloc(0);
    for await (const chunks of readSpeech(answer).chunks) {
      for (const { delta } of chunks) {
        const data = String(delta?.audio?.data);
        joined += data;
        decoded = Buffer.concat([decoded, Buffer.from(data, "base64")]);
      }
    }
    expect(joined).toBe(sound.toString("base64"));
    expect(decoded).toEqual(sound);
  }
});

test("Audio above the limit breaks off, and its connection is closed.", async () => {
  const { answer, isDestroyed } = answerOf([Buffer.alloc(60), Buffer.alloc(60)]);
  const read = async () => {
    for await (const _chunks of readSpeech(answer, 100).chunks);
  };
  await expect(read()).rejects.toMatchObject({ failure: "malformed" });
  expect(isDestroyed()).toBe(true);
});

test("An answer that is no audio is refused, and its connection is closed.", () => {
  const { answer, isDestroyed } = answerOf([], "text/html");
  expect(() => readSpeech(answer)).toThrow(/text\/html/);
  expect(isDestroyed()).toBe(true);
});
