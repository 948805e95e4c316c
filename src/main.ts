import { randomBytes } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, type Stats, statSync } from "node:fs";
import { enableCompileCache } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { dataDirectoryOfEnvironment } from "./config/sources.ts";

/** Names that exist only in a data directory in use: the database, or the spool of a service on PostgreSQL. */
const MARKS = ["tollgate.db", "spool"];
const WRITABLE_BY_OTHERS = 0o022;
const OPEN_TO_OTHERS = 0o077;

// Turned on before the other modules are loaded, so that it applies to them.
turnOnCompileCache(process.argv.slice(2));
const { runCommandLine } = await import("./cli/program.ts");
const { programVersion } = await import("./version.ts");

// The reader of the output may stop early, as `head` does.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});

// The service must go on when its log has no reader any more.
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
    confirm: process.stdin.isTTY && process.stderr.isTTY ? confirm : undefined,
  },
  programVersion().name,
);
// Waits until a slow reader has taken all output.
process.stdout.write("", () => process.exit(exitCode));

/** Asks on the terminal. Ctrl+C and the end of the input decline. */
async function confirm(question: string): Promise<boolean> {
  const [{ once }, { createInterface }] = await Promise.all([import("node:events"), import("node:readline/promises")]);
  using lines = createInterface({ input: process.stdin, output: process.stderr });
  const closed = once(lines, "close").then(() => "");
  const answer = await Promise.race([lines.question(question), closed]).catch(() => "");
  return /^y(es)?$/i.test(answer.trim());
}

/**
 * Turns on Node's compile cache, which halves the time to a start. Node runs the code that it finds there, so the cache is
 * in the data directory and is used only if both belong to this user and no other user can write to them. Nothing is
 * created in a directory without a store. A `dataDir` in the configuration file is ignored, because the cache is turned
 * on before the code that reads the file is loaded.
 */
function turnOnCompileCache(words: readonly string[]): void {
  const userId = process.getuid?.();
  if (userId === undefined) return;
  const { values } = parseArgs({ args: [...words], strict: false, options: { "data-dir": { type: "string" } } });
  const named = values["data-dir"];
  const dataDir = typeof named === "string" ? named : dataDirectoryOfEnvironment();
  const isOwn = (found: Stats, bits: number) =>
    found.isDirectory() && found.uid === userId && (found.mode & bits) === 0;
  try {
    if (!MARKS.some((name) => existsSync(join(dataDir, name)))) return;
    if (!isOwn(statSync(dataDir), WRITABLE_BY_OTHERS)) return;
    const directory = join(dataDir, "compile-cache");
    if (!existsSync(directory)) mkdirSync(directory, { mode: 0o700 });
    if (isOwn(lstatSync(directory), OPEN_TO_OTHERS)) enableCompileCache(directory);
  } catch {
    // Without a cache, the start is only slower.
  }
}
