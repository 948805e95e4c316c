import { execFile, execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const MEBIBYTES_MAX = 4_000;
const RUN_TAKES_MS_MOST = 1_200_000;

const run = promisify(execFile);

/** True if the model checker and the compiler that it needs are installed. */
export const hasSpin = isThere("spin", "-V") && isThere("gcc", "--version");

export interface Exploration {
  /** First violation that spin found. */
  violation: string | undefined;
  /** True if every interleaving was explored. */
  isWhole: boolean;
  states: number;
  /** Numbers of the model's steps that were never taken. */
  unreached: Set<number>;
}

/**
 * Lets spin explore every interleaving of a model, with these macros defined, until the first violation. The
 * compiler does not optimize: that would take longer than it saves.
 */
export async function explore(model: string, macros: string[]): Promise<Exploration> {
  const cwd = await mkdtemp(join(tmpdir(), "tollgate-model-"));
  try {
    const options = { cwd, timeout: RUN_TAKES_MS_MOST, maxBuffer: 64 * 1024 * 1024 };
    await run("spin", ["-a", ...macros.map((macro) => `-D${macro}`), model], options);
    const compile = ["-O0", "-w", "-DSAFETY", "-DVECTORSZ=1024", `-DMEMLIM=${MEBIBYTES_MAX}`];
    await run("gcc", [...compile, "-o", "pan", "pan.c"], options);
    const { stdout } = await run("./pan", ["-m100000", "-w21"], options);
    return explorationOf(stdout);
  } finally {
    await rm(cwd, { recursive: true, force: true });
  }
}

function explorationOf(told: string): Exploration {
  const [, errors] = /errors: (\d+)/.exec(told) ?? [];
  if (errors === undefined) throw new Error(`spin told nothing of errors: ${told.slice(-500)}`);
  return {
    violation: errors === "0" ? undefined : (/^pan:1: (.*) \(at depth/m.exec(told)?.[1] ?? told),
    isWhole: !/max search depth|Search not completed|out of memory/.test(told),
    states: Number(/(\d+) states, stored/.exec(told)?.[1]),
    unreached: new Set([...told.matchAll(/\.pml:\d+, state (\d+),/g)].map(([, step]) => Number(step))),
  };
}

function isThere(program: string, argument: string): boolean {
  try {
    execFileSync(program, [argument], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
