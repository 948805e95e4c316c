import { randomBytes } from "node:crypto";
import { turnOnCompileCache } from "./cli/compile-cache.ts";

// Before the rest is loaded, so that it applies to it.
turnOnCompileCache(process.argv.slice(2));
const { runCommandLine } = await import("./cli/program.ts");
const { version } = await import("./cli/version.ts");

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
