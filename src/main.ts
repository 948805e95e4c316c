import { randomBytes } from "node:crypto";
import { runCommandLine } from "./cli/program.ts";
import { version } from "./cli/version.ts";

// Whoever reads the output may stop early, as `head` does.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});

const exitCode = await runCommandLine(
  process.argv.slice(2),
  {
    out: (text) => process.stdout.write(`${text}\n`),
    error: (line) => process.stderr.write(`${line}\n`),
    clock: Date.now,
    random: randomBytes,
  },
  version,
);
process.exit(exitCode);
