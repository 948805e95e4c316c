import { answerTooLong, JSON_TYPE, mediaTypeOf, unknownType } from "../http/answer.ts";
import type { HttpAnswer, HttpBody } from "../http/exchange.ts";
import type { UpstreamClient } from "../http/upstream-client.ts";
import { type ProviderAnswer, type TaskCall, type UpstreamChunk, UpstreamError } from "../provider.ts";

/** Longest audio: 20 minutes of the largest format. Nothing of it is kept. */
const AUDIO_BYTES_MAX = 256 * 1024 * 1024;
/** Bytes that base64 writes as whole characters. */
const BYTES_A_GROUP = 3;

/** Sends a request of speech. Rejects with UpstreamError. */
export async function speak(client: UpstreamClient, call: TaskCall<"speech">): Promise<ProviderAnswer> {
  const body = JSON.stringify({ ...call.request, model: call.model });
  return readSpeech(await client.postTask("/audio/speech", body, call, { accept: "*/*", contentType: JSON_TYPE }));
}

/** Reads an answer of speech: its chunks are its bytes as they arrive. Throws UpstreamError if it is no audio. */
export function readSpeech(answer: HttpAnswer, bytesMax = AUDIO_BYTES_MAX): ProviderAnswer {
  const contentType = mediaTypeOf(answer.headers);
  if (!/^(audio\/[\w.+-]{1,64}|application\/octet-stream)$/.test(contentType)) throw unknownType(answer);
  return { chunks: audioChunks(answer.body, bytesMax), contentType };
}

async function* audioChunks(body: HttpBody, bytesMax: number): AsyncGenerator<readonly UpstreamChunk[], undefined> {
  let length = 0;
  let rest: Buffer = Buffer.alloc(0);
  try {
    for (let bytes = await body.read(); bytes !== undefined; bytes = await body.read()) {
      const joined = Buffer.concat([rest, ...bytes]);
      length += joined.length - rest.length;
      if (length > bytesMax) throw answerTooLong(bytesMax);
      const whole = joined.length - (joined.length % BYTES_A_GROUP);
      rest = joined.subarray(whole);
      if (whole > 0) yield [{ delta: { audio: { data: joined.toString("base64", 0, whole) } } }];
    }
    if (length === 0) throw new UpstreamError("malformed", "The upstream's audio is empty");
    yield [{ delta: { audio: { data: rest.toString("base64") } }, finish_reason: "stop" }];
  } finally {
    body.destroy();
  }
}
