import { parentPort } from "node:worker_threads";
import { countTokens, setMergeCacheSize } from "gpt-tokenizer/encoding/o200k_base";

/** Time after which no further window of a piece is begun [the worst window takes 2 ms]. */
const PIECE_MS = 5;
/** An entry takes up to 13 KB. With the library's own limit of 100,000, rare characters would use up the thread's memory. */
const CACHED_MERGES_MAX = 4_096;

/** Counts special tokens in a text as text: only the provider's template can write them. */
const AS_TEXT = { disallowedSpecial: new Set<string>() };

setMergeCacheSize(CACHED_MERGES_MAX);

parentPort?.on("message", (windows: readonly string[]) => {
  const untilMs = performance.now() + PIECE_MS;
  const counts: number[] = [];
  for (const window of windows) {
    counts.push(countTokens(window, AS_TEXT));
    if (performance.now() >= untilMs) break;
  }
  parentPort?.postMessage(counts);
});
