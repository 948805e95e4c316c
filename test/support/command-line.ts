import { type ChildProcess, spawn } from "node:child_process";
import { childEnvironment, loadHost, mainFile } from "./service.ts";

export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  /** Without the line about the store. */
  stderr: string;
  /** The kind and the place of the store that the command printed; null if it opened none. */
  store: string | null;
}

/** Separates the line that names a command's store from the rest of standard error. */
export function splitStore(printed: string): Pick<Ended, "stderr" | "store"> {
  const [line = "", store = null] = /^Store: (.*)\n/m.exec(printed) ?? [];
  return { stderr: printed.replace(line, ""), store };
}

export interface Started {
  child: ChildProcess;
  stdout(): string;
  stderr(): string;
  ended: Promise<Ended>;
  /** Resolves with standard output once it matches; rejects when the process ends before. */
  prints(pattern: RegExp): Promise<string>;
}

/** Starts `tollgate` in a directory, without the variables of this process that would configure it. */
export function startTollgate(
  words: string[],
  cwd: string,
  environment: Record<string, string> = {},
  input?: string,
): Started {
  const env = childEnvironment(environment);
  const child = spawn(process.execPath, [mainFile(), ...words], { cwd, env });
  child.stdin.end(input);
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (data) => {
    stdout += data;
  });
  child.stderr.on("data", (data) => {
    stderr += data;
  });
  const ended = new Promise<Ended>((resolve) => {
    child.once("close", (code, signal) => resolve({ code, signal, stdout, ...splitStore(stderr) }));
  });
  const prints = (pattern: RegExp) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        if (pattern.test(stdout)) resolve(stdout);
      };
      child.stdout.on("data", look);
      look();
      ended.then(() => reject(new Error(`It ended without printing ${pattern}: ${stdout}${stderr}`)));
    });
  return { child, stdout: () => stdout, stderr: () => stderr, ended, prints };
}

/** Runs a command in this process, which is faster than one of its own: those are tested in start.test.ts. */
export async function runCommand(
  words: string[],
  cwd: string,
  environment: Record<string, string> = {},
): Promise<Omit<Ended, "signal">> {
  const { runCommand: run } = await loadHost();
  const { code, stdout, stderr } = await run(words, { cwd, env: childEnvironment(environment) });
  return { code, stdout, ...splitStore(stderr) };
}

/** Runs a command to its end; `input` is its standard input. */
export function runTollgate(
  words: string[],
  cwd: string,
  environment: Record<string, string> = {},
  input?: string,
): Promise<Ended> {
  return startTollgate(words, cwd, environment, input).ended;
}
