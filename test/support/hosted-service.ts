/** The service and its commands in the process of the tests. The setup of the run bundles this file with src/. */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { startService } from "../../src/app.ts";
import type { Terminal } from "../../src/cli/command.ts";
import { runCommandLine } from "../../src/cli/program.ts";
import { printStart } from "../../src/cli/start-report.ts";
import type { Flags } from "../../src/config/sources.ts";
import { type Config, loadConfig } from "../../src/config.ts";
import { PROVIDER_KEY_VARIABLES } from "../../src/providers/registry.ts";
import { BoundedAccessLog, createLog } from "../../src/telemetry/logger.ts";
import { programVersion } from "../../src/version.ts";

const VERSION = programVersion().name;

interface Options {
  flags: Flags;
  /** Variables, instead of those of this process. */
  environment: Record<string, string>;
  /** Takes what a process of its own would print. */
  write(text: string): void;
}

/**
 * Starts a service in this process as `tollgate serve` does in its own. Returns a function that stops it.
 */
export async function hostService({ flags, environment, write }: Options): Promise<() => Promise<void>> {
  const hasFile = flags.config !== undefined || environment.TOLLGATE_CONFIG !== undefined;
  const sources = {
    flags,
    environment,
    providerKeyVariables: PROVIDER_KEY_VARIABLES,
    ...(!hasFile && { readFile: noFile }),
  };
  const load = async (files: Set<string>, isReload: boolean) =>
    withoutOverload(await loadConfig({ ...sources, files, isReload }));
  const files = new Set<string>();
  const config = await load(files, false);
  const log = createLog(config.log.level, write);
  const accessLog = new BoundedAccessLog({ ...config.log, clock: Date.now, random: Math.random, write });
  const out = (line: string) => write(`${line}\n`);
  let { server } = config;
  const apply = (changed: Config) => {
    log.setLevel(changed.log.level);
    accessLog.configure(changed.log);
    server = changed.server;
  };
  const source = { load: (read: Set<string>) => load(read, true), files, apply };
  const given = { clock: Date.now, random: randomBytes, version: VERSION, workers: 1 };
  const service = await startService(config, { ...given, log, accessLog, out, source });
  const stop = async () => {
    const { drainDelaySeconds, drainSeconds } = server;
    await service.stop({ delayMs: drainDelaySeconds * 1000, drainMs: drainSeconds * 1000 });
    accessLog.flush();
  };
  try {
    await printStart(config, out, service, "files", log);
  } catch (error) {
    await stop();
    throw error;
  }
  return stop;
}

/** Keeps a `tollgate.yaml` in the directory of the tests from being read. */
const noFile = () => {
  throw Object.assign(new Error("no file"), { code: "ENOENT" });
};

interface Place {
  cwd: string;
  env: NodeJS.ProcessEnv;
}

export interface Printed {
  code: number;
  stdout: string;
  stderr: string;
}

/** Variables of the run, which configure nothing. */
const RUN_VARIABLES = /^(?:TESTED_MAIN|TMPDIR|NODE_ENV|VITEST.*)$/;
/** Longer than any command takes, and shorter than the timeout of a test. */
const COMMAND_MS_MAX = 300_000;
let lastCommand = { words: [""], ended: Promise.resolve() };

/**
 * Runs a command in this process, after those before it: each changes the directory and the variables of the process. It has
 * a terminal that only prints, unless parts of another one are given.
 */
export async function runCommand(words: string[], place: Place, terminal: Partial<Terminal> = {}): Promise<Printed> {
  if (words[0] === "serve") throw new Error("`serve` handles signals: run it in a process of its own.");
  const running = endOf(lastCommand).then(() => runIn(place, () => run(words, terminal)));
  const end = () => {};
  lastCommand = { words, ended: running.then(end, end) };
  return running;
}

/** Resolves when a command has ended. Rejects with its name if it does not end. */
async function endOf({ words, ended }: typeof lastCommand): Promise<void> {
  const waiting = new AbortController();
  const late = sleep(COMMAND_MS_MAX, undefined, { signal: waiting.signal, ref: false }).then(() => {
    throw new Error(`This command has not ended after five minutes: tollgate ${words.join(" ")}`);
  });
  try {
    await Promise.race([ended, late]);
  } finally {
    waiting.abort();
  }
}

async function runIn<T>({ cwd, env }: Place, work: () => Promise<T>): Promise<T> {
  const own = { cwd: process.cwd(), env: { ...process.env } };
  const removed = Object.keys(own.env).filter((name) => env[name] === undefined && !RUN_VARIABLES.test(name));
  for (const name of removed) delete process.env[name];
  // A variable of the process that is set to undefined becomes the text "undefined".
  for (const [name, value] of Object.entries(env)) if (value !== undefined) process.env[name] = value;
  try {
    process.chdir(cwd);
    return await work();
  } finally {
    process.chdir(own.cwd);
    for (const name of Object.keys(env)) delete process.env[name];
    Object.assign(process.env, own.env);
  }
}

async function run(words: string[], own: Partial<Terminal>): Promise<Printed> {
  let [stdout, stderr] = ["", ""];
  const terminal = {
    out: (text: string) => (stdout += `${text}\n`),
    error: (text: string) => (stderr += `${text}\n`),
    drained: () => Promise.resolve(),
    clock: Date.now,
    random: randomBytes,
    isInteractive: false,
    ...own,
  };
  const code = await runCommandLine(words, terminal, VERSION);
  return { code, stdout, stderr };
}

/** Turns off the overload limits, because the tests share this process's event loop and memory. */
function withoutOverload(config: Config): Config {
  return { ...config, server: { ...config.server, overload: { eventLoopDelayMs: 0, memoryShare: 0 } } };
}
