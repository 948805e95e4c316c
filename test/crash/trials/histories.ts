import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const ROOT = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));
const HISTORIES = 200;
const OUTPUT_BYTES_MAX = 1 << 24;

/** Plays two hundred random histories of operations against the store and against a plain model of the books. */
export async function playHistories({ options }: Site, random: Random): Promise<void> {
  const name = { sqlite: "on SQLite", postgres: "on PostgreSQL" }[options.store];
  const environment = { HISTORIES: String(HISTORIES), HISTORIES_SEED: String(random.between(1, 1_000_000_000)) };
  const vitest = join(ROOT, "node_modules", "vitest", "vitest.mjs");
  const words = [vitest, "run", "test/books/histories.test.ts", "--testNamePattern", `${name}$`];
  const place = { cwd: ROOT, env: { ...process.env, ...environment }, maxBuffer: OUTPUT_BYTES_MAX };
  await promisify(execFile)(process.execPath, words, place).catch((error: { stdout?: string }) => {
    throw new Error(`the histories differ: ${error.stdout ?? String(error)}`);
  });
}
