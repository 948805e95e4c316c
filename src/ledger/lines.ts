import { createReadStream } from "node:fs";
import type { FileHandle } from "node:fs/promises";

export const LINE_END = 0x0a;
const CHUNK_BYTES = 256 * 1024;

export interface FileLine {
  /** Without its end. */
  line: Buffer;
  /** False for the last line of a file if its end is missing. */
  isComplete: boolean;
}

/** Yields the lines of a file between two positions. */
export async function* linesOf(file: string, start = 0, end = Number.POSITIVE_INFINITY): AsyncGenerator<FileLine> {
  let pieces: Buffer[] = [];
  const chunks = createReadStream(file, { start, end: end - 1, highWaterMark: CHUNK_BYTES }) as AsyncIterable<Buffer>;
  for await (const chunk of chunks) {
    let from = 0;
    for (let found = chunk.indexOf(LINE_END); found >= 0; found = chunk.indexOf(LINE_END, from)) {
      yield { line: Buffer.concat([...pieces, chunk.subarray(from, found)]), isComplete: true };
      pieces = [];
      from = found + 1;
    }
    if (from < chunk.length) pieces.push(chunk.subarray(from));
  }
  if (pieces.length > 0) yield { line: Buffer.concat(pieces), isComplete: false };
}

/** Writes all bytes at a position of a file, or at its end. A single write, unless the system writes only a part. */
export async function writeAll(handle: FileHandle, bytes: Buffer, position: number | null): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    const at = position === null ? null : position + written;
    written += (await handle.write(bytes, written, bytes.length - written, at)).bytesWritten;
  }
}
