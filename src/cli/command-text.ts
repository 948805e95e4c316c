import { fileURLToPath } from "node:url";

const LAUNCHER = fileURLToPath(new URL("../../bin/tollgate.js", import.meta.url));
const NEEDS_NO_QUOTES = /^[\w@%+=:,./-]+$/;

/** The flags that decide which service a command is about. */
export interface PlaceFlags {
  config?: string | undefined;
  dataDir?: string | undefined;
}

/**
 * Returns a command line that works as it is when pasted into a POSIX shell in the working directory of this process:
 * the running Node and the launcher by their paths, since neither needs to be on the PATH of that shell.
 */
export function commandText(command: string, { config, dataDir }: PlaceFlags = {}): string {
  const flags = [
    ...(config === undefined ? [] : ["--config", config]),
    ...(dataDir === undefined ? [] : ["--data-dir", dataDir]),
  ];
  return [...[process.execPath, LAUNCHER].map(shellWord), command, ...flags.map(shellWord)].join(" ");
}

function shellWord(text: string): string {
  return NEEDS_NO_QUOTES.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
