import { createHash } from "node:crypto";
import { crc32, deflateSync } from "node:zlib";
import { type ProviderAnswer, type ProviderImageCall, type UpstreamChunk, UpstreamError } from "../provider.ts";

/** The model that makes images. */
export const IMAGE_MODEL = "image";

const PIXELS = 16;
const BYTES_A_PIXEL = 3;
const PNG_SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** Makes pictures of 16x16 pixels that depend on nothing but the prompt and their number. Rejects with UpstreamError. */
export async function makeImagesInSandbox({ model, request, signal }: ProviderImageCall): Promise<ProviderAnswer> {
  signal.throwIfAborted();
  if (model !== IMAGE_MODEL) {
    const reason = `The sandbox makes images with the model ${IMAGE_MODEL} alone.`;
    throw new UpstreamError("misconfigured", reason, { said: reason });
  }
  const { prompt, n = 1, response_format } = request;
  return { chunks: imageChunks(prompt, n, response_format === "url") };
}

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
