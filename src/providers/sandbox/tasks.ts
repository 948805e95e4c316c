import { createHash } from "node:crypto";
import { once } from "../../api/answer.ts";
import type { EmbeddingInput } from "../../api/embeddings/request.ts";
import { type ProviderTasks, type TaskCall, type UpstreamChunk, UpstreamError, unsupportedField } from "../provider.ts";
import { countTokens } from "./text.ts";

const MODELS = { embedding: "embed", image: "image", speech: "speech", transcription: "transcribe" } as const;
export const SANDBOX_TASK_MODELS = Object.values(MODELS);

const DIMENSIONS = 256;
/** Inputs after which others have their turn. */
const INPUTS_A_BATCH = 16;
const BYTES_A_NUMBER = 4;
/** A frame of 16 by 16 pixels, as a PNG. */
const PICTURE = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQAQAAAAA3iMLMAAAAEklEQVR42mP4/5+hgZFY9P8/AAyoCwsNFi9HAAAAAElFTkSuQmCC";

/** Vectors, a picture, and sounds: the same request always has the same answer. They reject with UpstreamError. */
export const SANDBOX_TASKS: ProviderTasks = {
  embedding: async (call) => {
    check(call, "embedding");
    const { inputs, dimensions = DIMENSIONS } = call.request;
    const vectors: number[][] = [];
    for (const [index, input] of inputs.entries()) {
      if (index % INPUTS_A_BATCH === 0) await new Promise((resolve) => setImmediate(resolve));
      call.signal.throwIfAborted();
      vectors.push(unitVector(input, dimensions));
    }
    const counts = inputs.map((input) => (typeof input === "string" ? countTokens(input) : input.length));
    const usage = { prompt_tokens: counts.reduce((sum, count) => sum + count, 0), completion_tokens: 0 };
    return { chunks: once([{ vectors, usage, finish_reason: "stop" }]) };
  },
  image: async (call) => {
    check(call, "image");
    const { n = 1, response_format } = call.request;
    const image = response_format === "url" ? { url: `data:image/png;base64,${PICTURE}` } : { b64_json: PICTURE };
    const images = Array.from({ length: n }, () => ({ delta: { images: [image] } }));
    const whole = { output_format: "png", size: "16x16" };
    return { chunks: once([...images, { whole, finish_reason: "stop", calls: { images: n } }]) };
  },
  speech: async (call) => {
    check(call, "speech");
    const { input, response_format = "wav" } = call.request;
    if (response_format === "wav") return { chunks: soundChunks(input), contentType: "audio/wav" };
    throw unsupportedField("response_format", "the sandbox speaks wav alone");
  },
  transcription: async (call) => {
    check(call, "transcription");
    const duration = durationOf(Buffer.from(call.request.file.bytes));
    const text = `A WAV file of ${duration} seconds.`;
    const segments = [{ id: 0, start: 0, end: duration, text }];
    const whole = { task: "transcribe", language: "english", duration, segments };
    const calls = { seconds: Math.ceil(duration) };
    return { chunks: once([{ delta: { content: text }, whole, finish_reason: "stop", calls }]) };
  },
};

function check({ model, signal }: Pick<TaskCall<"image">, "model" | "signal">, task: keyof typeof MODELS): void {
  signal.throwIfAborted();
  if (model === MODELS[task]) return;
  const reason = `The sandbox has the model ${MODELS[task]} for this.`;
  throw new UpstreamError("misconfigured", reason, { said: reason });
}

/** Returns a vector of length 1 that depends on nothing but the input and the dimensions. */
function unitVector(input: EmbeddingInput, dimensions: number): number[] {
  const hash = createHash("shake256", { outputLength: dimensions * BYTES_A_NUMBER });
  const bytes = hash.update(JSON.stringify(input)).digest();
  const vector = Array.from({ length: dimensions }, (_, place) => bytes.readInt32LE(place * BYTES_A_NUMBER));
  const length = Math.hypot(...vector) || 1;
  return vector.map((number) => Math.fround(number / length));
}

const SAMPLES_A_SECOND = 8_000;
/** A twentieth of a second. */
const SAMPLES_A_CHARACTER = 400;
/** Base64 writes them as whole characters. */
const BYTES_A_CHUNK = 48 * 1024;

async function* soundChunks(text: string): AsyncGenerator<UpstreamChunk[], undefined> {
  const sound = soundOf([...text]);
  for (let at = 0; at < sound.length; at += BYTES_A_CHUNK) {
    yield [{ delta: { audio: { data: sound.toString("base64", at, at + BYTES_A_CHUNK) } } }];
  }
  yield [{ finish_reason: "stop" }];
}

/** Plays a note for each character, as a WAV file of one channel of eight bits ("Multimedia Programming Interface", RIFF). */
function soundOf(characters: readonly string[]): Buffer {
  const header = Buffer.alloc(44);
  const bytes = characters.length * SAMPLES_A_CHARACTER;
  header.write("RIFF\0\0\0\0WAVEfmt ", "latin1");
  header.writeUInt32LE(bytes + header.length - 8, 4);
  // 16 bytes of format: PCM, channels, samples and bytes a second, bytes and bits a sample.
  header.writeUInt32LE(16, 16);
  header.set([1, 0, 1, 0], 20);
  header.writeUInt32LE(SAMPLES_A_SECOND, 24);
  header.writeUInt32LE(SAMPLES_A_SECOND, 28);
  header.set([1, 0, 8, 0], 32);
  header.write("data", 36, "latin1");
  header.writeUInt32LE(bytes, 40);
  const notes = characters.map((character) => {
    const half = 6 + ((character.codePointAt(0) ?? 0) % 12);
    return Buffer.alloc(SAMPLES_A_CHARACTER, Buffer.alloc(2 * half, 160).fill(96, half));
  });
  return Buffer.concat([header, ...notes]);
}

/** Returns the seconds of a WAV file by its header. Throws UpstreamError for any other file. */
function durationOf(file: Buffer): number {
  const format = file.indexOf("fmt ", 12, "latin1");
  const data = file.indexOf("data", 12, "latin1");
  const isWave = file.toString("latin1", 0, 4) === "RIFF" && file.toString("latin1", 8, 12) === "WAVE";
  const bytesASecond = isWave && format > 0 && format + 20 <= file.length ? file.readUInt32LE(format + 16) : 0;
  const bytes = file.length - data - 8;
  if (bytesASecond > 0 && data > 0 && bytes > 0) return Math.round((bytes / bytesASecond) * 1000) / 1000;
  throw unsupportedField("file", "the sandbox reads WAV files alone");
}
