import { once } from "../../api/answer.ts";
import { detailsOf, isObject, type JsonObject, parseJson, pick } from "../../api/json.ts";
import type { TranscriptionRequest } from "../../api/transcription/request.ts";
import { answerObject } from "../errors.ts";
import { answerTooLong, JSON_TYPE, mediaTypeOf, readText, unknownType } from "../http/answer.ts";
import type { HttpAnswer, HttpBody } from "../http/exchange.ts";
import type { UpstreamClient } from "../http/upstream-client.ts";
import { usageOfResponses } from "../native/responses.ts";
import { type ProviderAnswer, type TaskCall, type UpstreamChunk, UpstreamError } from "../provider.ts";
import type { Scrub } from "../scrub.ts";

/** Longest answer: ten images of 1536x1024 pixels as base64 have about 40 MB. */
const IMAGES_BYTES_MAX = 64 * 1024 * 1024;
/** The fields of an answer that say what was made. */
const IMAGE_FIELDS = ["background", "output_format", "quality", "size"];

/** Sends a request of images. Rejects with UpstreamError. */
export async function makeImages(client: UpstreamClient, call: TaskCall<"image">): Promise<ProviderAnswer> {
  const body = JSON.stringify({ ...call.request, model: call.model });
  const answer = await client.postTask("/images/generations", body, call);
  const text = await readText(answer.body, { bytesMax: IMAGES_BYTES_MAX, room: call.room });
  return { chunks: readImages(text, call, client.scrub) };
}

/** Yields the images of an answer, each in the caller's turn, and what it states of them. */
async function* readImages(
  text: string,
  { inTurn }: Pick<TaskCall<"image">, "inTurn">,
  scrub: Scrub,
): AsyncGenerator<readonly UpstreamChunk[], undefined> {
  const answer = answerObject(await inTurn(() => parseJson(text)), scrub);
  const images = Array.isArray(answer.data) ? answer.data.map(toImage) : [];
  if (images.length === 0) throw new UpstreamError("malformed", "The upstream's answer has no images");
  for (const image of images) yield await inTurn(() => [{ delta: { images: [image] } }]);
  const calls = { images: images.length };
  const usage = isObject(answer.usage) ? { ...usageOfResponses(answer.usage), ...calls } : undefined;
  yield [{ whole: pick(answer, IMAGE_FIELDS), finish_reason: "stop", usage, calls }];
}

function toImage(item: unknown): JsonObject {
  const image = isObject(item) ? pick(item, ["b64_json", "url", "revised_prompt"]) : {};
  const texts = Object.entries(image).filter(([, value]) => typeof value === "string" && value !== "");
  const known = Object.fromEntries(texts);
  if ("b64_json" in known || "url" in known) return known;
  throw new UpstreamError("malformed", "The upstream's answer has an image without data and address");
}

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

/** Sends a file to be transcribed. Rejects with UpstreamError. */
export async function transcribe(client: UpstreamClient, call: TaskCall<"transcription">): Promise<ProviderAnswer> {
  const { request, model, room } = call;
  // The runtime writes the form, with a boundary that the file does not contain.
  const form = new Response(toForm(request, model));
  const types = { accept: JSON_TYPE, contentType: form.headers.get("content-type") ?? "" };
  const answer = await client.postTask("/audio/transcriptions", Buffer.from(await form.arrayBuffer()), call, types);
  const text = await readText(answer.body, { room });
  return { chunks: once([readTranscription(text, request, client.scrub)]) };
}

/** Texts and subtitles are asked for as JSON, which states what is charged. */
const FORMATS: { [Format in string]?: string } = { text: "json", srt: "verbose_json", vtt: "verbose_json" };
const formatFor = (format: string) => FORMATS[format] ?? format;

function toForm({ file, response_format: format = "json", ...fields }: TranscriptionRequest, model: string): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries({ ...fields, model, response_format: formatFor(format) })) {
    for (const one of [value].flat()) form.append(name, String(one));
  }
  form.append("file", new File([new Uint8Array(file.bytes)], file.name, { type: file.type }));
  return form;
}

function readTranscription(
  text: string,
  { response_format: format = "json" }: Pick<TranscriptionRequest, "response_format">,
  scrub: Scrub,
): UpstreamChunk {
  const answer = answerObject(parseJson(text), scrub);
  const { text: content, usage, duration } = answer;
  const isWhole = (format !== "srt" && format !== "vtt") || Array.isArray(answer.segments);
  if (typeof content !== "string" || !isWhole) throw new UpstreamError("malformed", "The upstream transcribed nothing");
  const { seconds = duration, input_token_details, ...tokens } = detailsOf(usage);
  const { audio_tokens } = detailsOf(input_token_details);
  const hasTokens = tokens.input_tokens !== undefined;
  return {
    delta: { content },
    // Other formats have none of it, and what is counted is what the client receives.
    ...(formatFor(format) === "verbose_json" && {
      whole: pick(answer, ["task", "language", "duration", "segments", "words"]),
    }),
    finish_reason: "stop",
    ...(hasTokens && { usage: { ...usageOfResponses(tokens), input_audio_tokens: audio_tokens } }),
    ...(typeof seconds === "number" && seconds > 0 && { calls: { seconds: Math.ceil(seconds) } }),
  };
}
