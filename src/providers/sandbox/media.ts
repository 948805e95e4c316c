import { createHash } from "node:crypto";
import { crc32, deflateSync } from "node:zlib";
import { once } from "../../api/answer.ts";
import { type ProviderTasks, type TaskCall, type UpstreamChunk, UpstreamError, unsupportedField } from "../provider.ts";

/** The models that do not chat, by their tasks. */
const MODELS = { image: "image", speech: "speech", transcription: "transcribe" } as const;
export const SANDBOX_TASK_MODELS = Object.values(MODELS);

/** Pictures and sounds that depend on nothing but the request. They reject with UpstreamError. */
export const SANDBOX_TASKS: ProviderTasks = {
  image: async (call) => {
    check(call, "image");
    const { prompt, n = 1, response_format } = call.request;
    return { chunks: imageChunks(prompt, n, response_format === "url") };
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
    const whole = {
      task: "transcribe",
      language: "english",
      duration,
      segments: [{ id: 0, start: 0, end: duration, text }],
    };
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

const PIXELS = 16;
const BYTES_A_PIXEL = 3;
const PNG_SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

async function* imageChunks(prompt: string, n: number, asAddress: boolean): AsyncGenerator<UpstreamChunk[], undefined> {
  for (let number = 0; number < n; number += 1) {
    const data = picture(`${number}:${prompt}`).toString("base64");
    const image = asAddress ? { url: `data:image/png;base64,${data}` } : { b64_json: data };
    yield [{ delta: { images: [image] } }];
  }
  const whole = { output_format: "png", size: `${PIXELS}x${PIXELS}` };
  yield [{ whole, finish_reason: "stop", calls: { images: n } }];
}

/** Draws coloured pixels as a PNG ("Portable Network Graphics Specification", W3C). */
function picture(text: string): Buffer {
  const rowBytes = 1 + PIXELS * BYTES_A_PIXEL;
  const rows = createHash("shake256", { outputLength: PIXELS * rowBytes })
    .update(text)
    .digest();
  // Each row begins with its filter: none.
  for (let y = 0; y < PIXELS; y += 1) rows[y * rowBytes] = 0;
  const header = Buffer.alloc(13);
  header.writeUInt32BE(PIXELS, 0);
  header.writeUInt32BE(PIXELS, 4);
  // Eight bits a channel, in three channels.
  header.set([8, 2], 8);
  const data = deflateSync(rows);
  return Buffer.concat([PNG_SIGNATURE, pngChunk("IHDR", header), pngChunk("IDAT", data), pngChunk("IEND")]);
}

function pngChunk(type: string, data: Buffer = Buffer.alloc(0)): Buffer {
  const named = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const chunk = Buffer.alloc(named.length + 8);
  chunk.writeUInt32BE(data.length, 0);
  named.copy(chunk, 4);
  chunk.writeUInt32BE(crc32(named), named.length + 4);
  return chunk;
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
