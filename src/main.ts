import { randomBytes } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, readFileSync, type Stats, statSync } from "node:fs";
import { enableCompileCache } from "node:module";
import { join } from "node:path";
import { dataDirectoryOfEnvironment } from "./config/read-file.ts";

/** Names that exist only in a data directory in use: the database, or the spool of a service on PostgreSQL. */
const MARKS = ["tollgate.db", "spool"];
const WRITABLE_BY_OTHERS = 0o022;
const OPEN_TO_OTHERS = 0o077;

// Before the rest is loaded, so that it applies to it.
turnOnCompileCache(process.argv.slice(2));
const { runCommandLine } = await import("./cli/program.ts");
const manifest: unknown = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
const { version } = manifest as { version: string };

// Readers of the output can stop early, as `head` does.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});

// A log that nobody reads any more must not end the service.
process.stderr.on("error", () => undefined);

const exitCode = await runCommandLine(
  process.argv.slice(2),
  {
    out: (text) => process.stdout.write(`${text}\n`),
    drained: () => new Promise((resolve) => process.stdout.write("", () => resolve())),
    error: (line) => process.stderr.write(`${line}\n`),
    clock: Date.now,
    random: randomBytes,
    isInteractive: process.stdout.isTTY,
  },
  version,
);
// Flushes the output: a slow reader would lose the rest.
process.stdout.write("", () => process.exit(exitCode));

/**
 * Turns on Node's compile cache, which halves the time to a start. Node runs what it finds there, so the cache lies in the
 * data directory and is used only where both belong to this user and nobody else can write to them; otherwise there is
 * none. In a directory without a store nothing is created. A `dataDir` of the configuration file is not looked at: the
 * cache is turned on before anything that could read it is loaded.
 */
function turnOnCompileCache(words: readonly string[]): void {
  const userId = process.getuid?.();
  if (userId === undefined) return;
  const dataDir = dataDirectoryOf(words) ?? dataDirectoryOfEnvironment();
  const isOwn = (found: Stats, bits: number) =>
    found.isDirectory() && found.uid === userId && (found.mode & bits) === 0;
  try {
    if (!MARKS.some((name) => existsSync(join(dataDir, name)))) return;
    if (!isOwn(statSync(dataDir), WRITABLE_BY_OTHERS)) return;
    const directory = join(dataDir, "compile-cache");
    if (!existsSync(directory)) mkdirSync(directory, { mode: 0o700 });
    if (isOwn(lstatSync(directory), OPEN_TO_OTHERS)) enableCompileCache(directory);
  } catch {
    // Without a cache the start is slower, and nothing else.
  }
}

function dataDirectoryOf(words: readonly string[]): string | undefined {
  const index = words.findLastIndex((word) => word === "--data-dir" || word.startsWith("--data-dir="));
  const word = words[index];
  return word === "--data-dir" ? words[index + 1] : word?.slice("--data-dir=".length);
}
