import { execFile, execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { countOf } from "./support/counts.ts";
import { ROOT } from "./support/documents.ts";

const LEDGER = join(ROOT, "docs", "ledger.pml");
const LEASES = join(ROOT, "docs", "leases.pml");
const TAKES_MS_MOST = 1_500_000;
const MEBIBYTES_MAX = 4_000;
const RUN_TAKES_MS_MOST = 1_200_000;

const run = promisify(execFile);

/** True if the model checker and the compiler that it needs are installed. */
const hasSpin = isThere("spin", "-V") && isThere("gcc", "--version");

interface Exploration {
  /** First violation that spin found. */
  violation: string | undefined;
  /** True if every interleaving was explored. */
  isWhole: boolean;
  states: number;
  /** Numbers of the model's steps that were never taken. */
  unreached: Set<number>;
}

if (!hasSpin) console.log("The models of the ledger (docs/*.pml) were skipped: spin or gcc is not installed.");

test.each(["ledger.pml", "leases.pml"])("every step that %s names exists in the source", (name) => {
  const model = join(ROOT, "docs", name);
  const named = [...readFileSync(model, "utf8").matchAll(/(src\/[\w/.-]+\.ts): (\w+)/g)];
  const wrong = named.filter(([, file = "", step = ""]) => {
    const path = join(ROOT, file);
    return !existsSync(path) || !new RegExp(`\\b${step}\\b`).test(readFileSync(path, "utf8"));
  });
  expect(named.length).toBeGreaterThan(20);
  expect(wrong.map(([text]) => text)).toEqual([]);
});

interface ModelCase {
  title: string;
  model: string;
  statesMin: number;
  /** Failures that one run may meet together. Each run is explored completely. */
  runs: string[];
  /** Each broken variant, the failures that it needs, and what it does. */
  broken: [macro: string, failures: string, title: string][];
}

const MODELS: ModelCase[] = [
  {
    title: "the ledger",
    model: LEDGER,
    statesMin: 500_000,
    // Together every pair of lost connections, crashes of the store and nodes that die; the budget binds no request.
    runs: [
      "FAULTS=2 CRASHES=0 KILLS=0",
      "FAULTS=1 CRASHES=0 KILLS=1",
      "FAULTS=0 CRASHES=1 KILLS=1",
      "FAULTS=1 CRASHES=1 KILLS=0",
      // A budget that binds, and whose window ends at any instant.
      "BUDGET=2 TURNS=1 FAULTS=1 CRASHES=0 KILLS=1",
      "BUDGET=2 TURNS=1 FAULTS=0 CRASHES=1 KILLS=0",
    ],
    broken: [
      ["SETTLE_WITHOUT_STATE", "FAULTS=1 CRASHES=0 KILLS=0", "a settlement charges whatever the hold's state is"],
      ["READ_BEFORE_LOCK", "FAULTS=0 CRASHES=0 KILLS=0", "the hold is read before the balance is locked"],
      ["NO_LOCK", "FAULTS=0 CRASHES=0 KILLS=0", "the balance is not locked"],
      ["LOCKS_UNORDERED", "FAULTS=0 CRASHES=0 KILLS=0", "two transactions lock in opposite orders"],
      ["EXPIRE_UNTESTED", "FAULTS=1 CRASHES=0 KILLS=0", "an expiry is not tested again on the locked row"],
      [
        "REPLAY_UNGUARDED",
        "FAULTS=1 CRASHES=0 KILLS=0",
        "an entry of the spool is booked whatever its hold's state is",
      ],
      ["SPOOL_EMPTIED_FIRST", "FAULTS=1 CRASHES=0 KILLS=0", "the spool forgets an entry before it is booked"],
      ["ANSWER_FIRST", "FAULTS=0 CRASHES=0 KILLS=0", "the last byte leaves before the settlement"],
      ["SETTLE_NOT_DURABLE", "FAULTS=0 CRASHES=1 KILLS=0", "a settlement need not survive a crash of the store"],
      ["SETTLE_NEEDS_HOLD", "FAULTS=0 CRASHES=1 KILLS=0", "a settlement whose hold was lost books nothing"],
      ["RELEASE_WITHOUT_STATE", "FAULTS=1 CRASHES=0 KILLS=0", "a release gives back whatever the hold's state is"],
      ["RENEW_REVIVES", "FAULTS=1 CRASHES=0 KILLS=0", "a renewal opens a hold that has ended"],
      ["RENEW_FORGETS", "FAULTS=0 CRASHES=1 KILLS=0", "a renewal does not put a lost hold back"],
      ["HOLD_UNGUARDED", "FAULTS=1 CRASHES=0 KILLS=0", "a hold that is asked for again is made again"],
      ["BUDGET_READ_FIRST", "BUDGET=2 FAULTS=0 CRASHES=0 KILLS=0", "the budget's counter is read before it is locked"],
      ["BUDGET_IGNORES_HELD", "BUDGET=2 FAULTS=0 CRASHES=0 KILLS=0", "what running requests hold counts in no budget"],
      [
        "BUDGET_OF_THE_END",
        "BUDGET=2 TURNS=1 FAULTS=0 CRASHES=0 KILLS=0",
        "a charge counts in the budget's window of the settlement",
      ],
    ],
  },
  {
    title: "leases",
    model: LEASES,
    statesMin: 40_000,
    runs: [
      "CUTS=1 SUSPENSIONS=1",
      "CUTS=1 KILLS=1 CRASHES=1",
      "CUTS=1 OUTAGES=1 JUMPS=1",
      "CUTS=2 SETBACKS=1",
      "SUSPENSIONS=1 KILLS=1 CRASHES=1",
      "LOCKS=1 CRASHES=1",
    ],
    broken: [
      ["NO_FENCE", "CUTS=1", "the owner never stops writing"],
      ["FENCE_BY_TIMER", "SUSPENSIONS=1", "only a timer stops the owner, and it does not run during a suspension"],
      ["FENCE_MONOTONIC", "SUSPENSIONS=1", "the lease is aged only by the clock that stops during a suspension"],
      ["FENCE_WALL", "CUTS=1 SETBACKS=1", "the lease is aged only by the clock that can be set back"],
      ["LEASE_FROM_ANSWER", "SUSPENSIONS=1", "the lease counts from the answer to a renewal"],
      ["CUT_UNSETTLED", "CUTS=1", "what was delivered before the owner stopped is not settled"],
      ["RECOVER_AT_LIFE", "CUTS=1", "another process recovers a hold without waiting for recoverySeconds"],
      ["RECOVER_UNSEEN", "JUMPS=1", "another process recovers a hold that it has not seen unchanged"],
      ["RECOVER_UNREACHED", "CUTS=1 OUTAGES=1", "another process recovers a hold as soon as the store is back"],
      ["CLAIM_IGNORED", "CUTS=1", "a claim is not tested again on the locked row"],
      ["TAKE_UNREPLAYED", "CUTS=1 KILLS=1", "a spool is taken over without replaying it first"],
      ["TAKE_UNWAITED", "LOCKS=1", "a spool is taken over without waiting for renewals"],
      ["RENEW_UNTESTED", "SUSPENSIONS=1 CRASHES=1", "a renewal revives a lease that is over"],
      ["REMAKE_NOTHING", "CRASHES=1", "a renewal does not make a missing hold again"],
      ["LATE_FORGOTTEN", "CUTS=1", "a late settlement books nothing"],
    ],
  },
];

/** Digests of the models and cases that were explored completely, each with what it is the digest of. */
const EXPLORED = join(import.meta.dirname, "model.explored.txt");
const digests = MODELS.map((one) => {
  const digest = createHash("sha256")
    .update(readFileSync(one.model))
    .update(JSON.stringify([one.runs, one.broken]));
  return `${digest.digest("hex")} ${one.title}\n`;
}).join("");

/**
 * Decides how much is explored. What spin finds depends on the model and its cases alone, so these are explored completely
 * when one of them has changed, and by the soak; otherwise one run and one broken variant of each show that it works.
 */
const isComplete = countOf("explorations") > 1 || !existsSync(EXPLORED) || readFileSync(EXPLORED, "utf8") !== digests;
const chosen = <T>(cases: readonly T[]) => (isComplete ? cases : cases.slice(0, 1));

describe.skipIf(!hasSpin).each(MODELS)(
  "spin explores the model of $title",
  { timeout: TAKES_MS_MOST },
  ({ model, statesMin, runs, broken }) => {
    const explorations: Exploration[] = [];

    test.each(chosen(runs))("it holds in every interleaving with %s", async (failures) => {
      const exploration = await explore(model, failures.split(" "));
      explorations.push(exploration);
      expect(exploration).toMatchObject({ violation: undefined, isWhole: true });
      expect(exploration.states).toBeGreaterThan(statesMin);
    });

    test.runIf(isComplete)("these runs together take every step of it", () => {
      const [first = new Set<number>(), ...others] = explorations.map(({ unreached }) => unreached);
      expect(explorations).toHaveLength(runs.length);
      expect([...first].filter((step) => others.every((unreached) => unreached.has(step)))).toEqual([]);
    });

    test.each(chosen(broken))("it fails with %s (%s): %s", async (macro, failures) => {
      const exploration = await explore(model, [macro, ...failures.split(" ")]);
      expect(exploration.violation).toMatch(/assertion violated|invalid end state/);
    });
  },
);

let failures = 0;
afterEach(({ task }) => {
  if (task.result?.state === "fail") failures += 1;
});

test.skipIf(!hasSpin)(
  "the digests of what was explored completely are recorded (vitest test/model.test.ts -u)",
  async () => {
    expect(failures).toBe(0);
    await expect(digests).toMatchFileSnapshot(EXPLORED);
  },
);

/**
 * Lets spin explore every interleaving of a model, with these macros defined, until the first violation. The
 * compiler does not optimize: that would take longer than it saves.
 */
async function explore(model: string, macros: string[]): Promise<Exploration> {
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

function explorationOf(output: string): Exploration {
  const [, errors] = /errors: (\d+)/.exec(output) ?? [];
  if (errors === undefined) throw new Error(`spin reported no count of errors: ${output.slice(-500)}`);
  return {
    violation: errors === "0" ? undefined : (/^pan:1: (.*) \(at depth/m.exec(output)?.[1] ?? output),
    isWhole: !/max search depth|Search not completed|out of memory/.test(output),
    states: Number(/(\d+) states, stored/.exec(output)?.[1]),
    unreached: new Set([...output.matchAll(/\.pml:\d+, state (\d+),/g)].map(([, step]) => Number(step))),
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
