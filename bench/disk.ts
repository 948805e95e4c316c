import { closeSync, fdatasyncSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { percentile } from "./peer.ts";
import { pause } from "./processes.ts";

/** A page of SQLite's log with its header (SQLite's file format, section 4.1). */
const FRAME_BYTES = 4_096 + 24;
/** Balance, grant, hold, request and the index of requests: the pages of a settlement that is committed alone. */
const FRAMES_A_SETTLEMENT = 5;
const SYNCS = 300;
const PAUSE_MS = 2;

/**
 * Measures how long the disk of a folder takes to sync what one settlement writes, into a file that has its full length, as
 * the log of the store has under load. No settlement alone can take less. Resolves with milliseconds.
 */
export async function measureSyncs(folder: string): Promise<{ p50: string; p99: string }> {
  const path = join(folder, "syncs");
  const file = openSync(path, "w+");
  const bytes = Buffer.alloc(FRAME_BYTES * FRAMES_A_SETTLEMENT, 1);
  const timesMs: number[] = [];
  try {
    writeSync(file, Buffer.alloc(bytes.length * SYNCS));
    fdatasyncSync(file);
    for (let done = 0; done < SYNCS; done += 1) {
      writeSync(file, bytes, 0, bytes.length, done * bytes.length);
      const beganAtMs = performance.now();
      fdatasyncSync(file);
      timesMs.push(performance.now() - beganAtMs);
      await pause(PAUSE_MS);
    }
  } finally {
    closeSync(file);
    rmSync(path);
  }
  return { p50: percentile(timesMs, 0.5, 2), p99: percentile(timesMs, 0.99, 2) };
}
