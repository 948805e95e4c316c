import { execFile } from "node:child_process";
import { randomInt } from "node:crypto";
import { join } from "node:path";
import { promisify } from "node:util";
import { ROOT } from "./documents.ts";

interface Count {
  /** File of the test. */
  file: string;
  /** Number of cases in `npm test`, and in a soak. */
  tests: number;
  soak: number;
  /** Unit of the cases, in the plural. */
  unit: string;
}

const OUTPUT_BYTES_MAX = 1 << 24;

/** Tests of which a soak plays more cases: `npm run soak -- --trials NAME`. */
export const COUNTS = {
  connections: {
    file: "test/hostile/connections.test.ts",
    tests: 200,
    soak: 100_000,
    unit: "connections that break off at any byte",
  },
  headers: {
    file: "test/hostile/clients.test.ts",
    tests: 300,
    soak: 5_000,
    unit: "connections with slow headers",
  },
  departures: {
    file: "test/money/hidden-output.test.ts",
    tests: 200,
    soak: 10_000,
    unit: "clients that disconnect with their answer",
  },
  metering: {
    file: "test/money/metering.test.ts",
    tests: 100,
    soak: 20_000,
    unit: "answers of random pieces, from each wire to each",
  },
  deliveries: {
    file: "test/payments/deliveries.test.ts",
    tests: 1_000,
    soak: 20_000,
    unit: "random orders of the payment provider's deliveries",
  },
  topUps: {
    file: "test/payments/top-up-orders.test.ts",
    tests: 150,
    soak: 5_000,
    unit: "random orders of automatic top-ups and faults",
  },
  bodies: { file: "test/hostile/input.test.ts", tests: 500, soak: 1_000_000, unit: "generated bodies" },
  tokens: { file: "test/hostile/tokens.test.ts", tests: 500, soak: 1_000_000, unit: "random tokens" },
  events: {
    file: "src/providers/http/event-stream.test.ts",
    tests: 2_000,
    soak: 1_000_000,
    unit: "split event streams",
  },
  prices: { file: "src/credits/price.test.ts", tests: 20_000, soak: 1_000_000, unit: "prices" },
  histories: { file: "test/books/histories.test.ts", tests: 250, soak: 200, unit: "histories" },
  decisions: {
    file: "src/credits/decide.property.test.ts",
    tests: 100,
    soak: 100_000,
    unit: "histories of decisions",
  },
  closings: { file: "src/stores/sqlite/sqlite.test.ts", tests: 2, soak: 500, unit: "histories that are closed" },
  changes: {
    file: "src/stores/postgres/postgres.test.ts",
    tests: 1,
    soak: 100,
    unit: "rows of a table, or all there are, in which each column is changed",
  },
  explorations: { file: "test/model.test.ts", tests: 1, soak: 100, unit: "cases of each model, or all there are" },
  sums: {
    file: "src/stores/sqlite/sqlite.test.ts",
    tests: 10,
    soak: 10_000,
    unit: "sets of requests that are added up",
  },
} as const satisfies Record<string, Count>;

export type CountName = keyof typeof COUNTS;

/** The variable that changes a count. */
const variableOf = (name: CountName) => `COUNT_${name.toUpperCase()}`;

/** Returns the number of cases of a test, which a soak changes. */
export function countOf(name: CountName): number {
  return Number(process.env[variableOf(name)] ?? COUNTS[name].tests);
}

/** Returns the time for a test, of which the given one is enough for its number of cases in `npm test`. */
export function timeoutOf(name: CountName, enoughMs = 180_000): number {
  return enoughMs * Math.max(1, countOf(name) / COUNTS[name].tests);
}

/** Returns the seed in the variable `SEED`, by which a run is repeated, or a random one. */
export function seedOfRun(): number {
  return Number(process.env.SEED ?? randomInt(1_000_000_000));
}

/** Runs the tests of a file with this number of cases, in a process of its own. Rejects with what failed. */
export async function playCases(
  name: CountName,
  { count, seed, words = [] }: { count: number; seed: number; words?: string[] },
): Promise<void> {
  const vitest = join(ROOT, "node_modules", "vitest", "vitest.mjs");
  const env = { ...process.env, [variableOf(name)]: String(count), SEED: String(seed) };
  const place = { cwd: ROOT, env, maxBuffer: OUTPUT_BYTES_MAX };
  await promisify(execFile)(process.execPath, [vitest, "run", COUNTS[name].file, ...words], place).catch(
    // vitest writes the results to one and the failures to the other.
    (error: { stdout?: string; stderr?: string }) => {
      throw new Error(`${name}, seed ${seed}: ${[error.stdout, error.stderr].join("\n").trim() || String(error)}`);
    },
  );
}
