import { spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { HoldFacts } from "../src/credits/facts.ts";
import { FREE, NO_TOKENS } from "../src/credits/price.ts";
import { uuidV7 } from "../src/internals/ids.ts";
import type { Ledger } from "../src/ledger/ledger.ts";
import type { Store } from "../src/stores/store.ts";
import { keepLog } from "../test/support/log.ts";
import { openLedger } from "../test/support/open-ledger.ts";
import { median } from "./report.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const PRICES = { ...FREE, output: 1_000_000n };
const HELD = 1_000n;
const OUTPUT_TOKENS = 400;
const WARM_UP_MS = 2_000;

export interface BesidePlan {
  organizationId: string;
  dataDir: string;
  /** Null: the store is in `dataDir`. */
  databaseUrl: string | null;
  turnMs: number;
  /** Turns of each kind: without the check and with it, alternating. */
  turns: number;
  /** Requests at once. */
  clients: number;
  /** Requests a second; null: as many as the ledger takes. */
  rate: number | null;
}

interface Turn {
  pairsPerSecond: number;
  holds: number[];
  settlements: number[];
}

/**
 * Measures how much `tollgate ledger verify` slows down holds and settlements. A ledger in this process books both for one
 * organization, as for requests that end at once. In every second turn the check runs in a separate process, again and
 * again. Prints a table and the ratio.
 */
export async function measureBeside(store: Store, plan: BesidePlan): Promise<void> {
  const ledger = await startLedger(store, plan.dataDir);
  const alone: Turn[] = [];
  const beside: Turn[] = [];
  try {
    await play(ledger, { ...plan, turnMs: WARM_UP_MS });
    for (let turn = 0; turn < plan.turns; turn += 1) {
      alone.push(await play(ledger, plan));
      const check = keepChecking(plan);
      try {
        await check.begun;
        beside.push(await play(ledger, plan));
      } finally {
        await check.end();
      }
    }
  } finally {
    await ledger.stop();
  }
  report({ alone, "beside the check": beside });
  const rate = (turns: Turn[]) => median(turns.map(({ pairsPerSecond }) => pairsPerSecond));
  console.log(`rate beside the check / alone: ${(rate(beside) / rate(alone)).toFixed(2)}`);
}

interface AgedPlan {
  organizationId: string;
  turnMs: number;
  turns: number;
  clients: number;
  rate: number;
  /** A store without requests, and one with a history. */
  empty: { store: Store; dataDir: string };
  aged: { store: Store; dataDir: string };
  /** Each closes a month of the history. */
  closings: readonly (() => Promise<void>)[];
}

/**
 * Measures what a history, and retention in the same process, add to holds and settlements: in turns on both stores, then
 * while each month is closed. Prints a table and the ratios.
 */
export async function measureAged({ empty, aged, closings, ...plan }: AgedPlan): Promise<void> {
  const [young, old] = [await startLedger(empty.store, empty.dataDir), await startLedger(aged.store, aged.dataDir)];
  const turns: Record<string, Turn[]> = { "empty store": [], history: [], "history, during retention": [] };
  try {
    for (const ledger of [young, old]) await play(ledger, { ...plan, turnMs: WARM_UP_MS });
    for (let turn = 0; turn < plan.turns; turn += 1) {
      turns["empty store"]?.push(await play(young, plan));
      turns.history?.push(await play(old, plan));
    }
    for (const close of closings) {
      let isClosed = false;
      const closing = close().finally(() => {
        isClosed = true;
      });
      turns["history, during retention"]?.push(await play(old, { ...plan, isOver: () => isClosed }));
      await closing;
    }
  } finally {
    for (const ledger of [young, old]) await ledger.stop();
  }
  report(turns);
}

async function startLedger({ books, allowances }: Store, dataDir: string): Promise<Ledger> {
  const timing = { holdLifeMs: 120_000, renewEveryMs: 10_000, sweepEveryMs: 10_000 };
  const parts = { books, allowances, dataDir, log: keepLog(), clock: Date.now, random: Math.random };
  const ledger = await openLedger({ ...parts, ...timing });
  ledger.start();
  return ledger;
}

interface PlayPlan extends Pick<BesidePlan, "organizationId" | "turnMs" | "clients" | "rate"> {
  /** Ends the turn instead of its time. */
  isOver?: () => boolean;
}

/** Holds and settles, one after the other, with every client, for one turn. */
async function play(ledger: Ledger, { organizationId, turnMs, clients, rate, isOver }: PlayPlan): Promise<Turn> {
  const turn: Turn = { pairsPerSecond: 0, holds: [], settlements: [] };
  const beganAtMs = performance.now();
  const client = async (number: number) => {
    const isRunning = () => (isOver === undefined ? performance.now() - beganAtMs < turnMs : !isOver());
    for (let made = 0; isRunning(); made += 1) {
      const dueAtMs = rate === null ? performance.now() : beganAtMs + ((made * clients + number) * 1_000) / rate;
      if (dueAtMs > performance.now()) await sleep(dueAtMs - performance.now());
      // Late requests have waited since they were due; a timer may also be a little early.
      const fromMs = Math.min(dueAtMs, performance.now());
      const facts = factsOf(organizationId);
      const hold = await ledger.hold({ facts, callerId: facts.tokenId, least: HELD, most: HELD });
      if (hold.outcome !== "held") throw new Error(`a hold was answered with ${hold.outcome}`);
      const heldAtMs = performance.now();
      turn.holds.push(heldAtMs - fromMs);
      const tokens = { ...NO_TOKENS, output: OUTPUT_TOKENS };
      const settled = await ledger.settle({ facts, tokens, basis: "reported", end: "complete" });
      if (settled.outcome !== "charged") throw new Error(`a settlement was answered with ${settled.outcome}`);
      turn.settlements.push(performance.now() - heldAtMs);
    }
  };
  await Promise.all(Array.from({ length: clients }, (_, number) => client(number)));
  turn.pairsPerSecond = (turn.settlements.length * 1_000) / (performance.now() - beganAtMs);
  return turn;
}

function factsOf(organizationId: string): HoldFacts {
  const request = { tokenId: "tok_bench", requestId: "req_bench", model: "sandbox/echo", upstream: "sandbox/echo" };
  return {
    holdId: uuidV7(Date.now()),
    organizationId,
    prices: PRICES,
    metadata: null,
    idempotencyKey: null,
    ...request,
  };
}

/** Runs the command over and over; `begun` resolves when the first one has had the time to open the store. */
function keepChecking({ dataDir, databaseUrl }: BesidePlan): { begun: Promise<void>; end(): Promise<void> } {
  const stop = new AbortController();
  const env = { ...process.env, ...(databaseUrl !== null && { DATABASE_URL: databaseUrl }) };
  const checkOnce = () =>
    new Promise<void>((resolve, reject) => {
      const words = [MAIN, "ledger", "verify", "--data-dir", dataDir];
      const child = spawn(process.execPath, words, {
        env,
        signal: stop.signal,
        stdio: ["ignore", "ignore", "inherit"],
      });
      child.once("error", (error) => (stop.signal.aborted ? resolve() : reject(error)));
      child.once("exit", (code) => {
        if (code === 0 || stop.signal.aborted) resolve();
        else reject(new Error(`the check ended with ${code}`));
      });
    });
  const running = (async () => {
    while (!stop.signal.aborted) await checkOnce();
  })();
  running.catch(() => {});
  return {
    begun: sleep(WARM_UP_MS),
    async end() {
      stop.abort();
      await running;
    },
  };
}

function report(turnsByName: Record<string, Turn[]>): void {
  const summed = (turns: Turn[]) => ({
    rate: median(turns.map(({ pairsPerSecond }) => pairsPerSecond)),
    holds: turns.flatMap(({ holds }) => holds).toSorted((a, b) => a - b),
    settlements: turns.flatMap(({ settlements }) => settlements).toSorted((a, b) => a - b),
  });
  const row = (name: string, { rate, holds, settlements }: ReturnType<typeof summed>) => {
    const times = [holds, settlements].flatMap((all) => [at(all, 0.5), at(all, 0.99)].map((ms) => ms.toFixed(1)));
    return `| ${[name, Math.round(rate), ...times].join(" | ")} |`;
  };
  console.log(
    "| | pairs/s | hold p50 ms | p99 ms | settlement p50 ms | p99 ms |\n| --- | --: | --: | --: | --: | --: |",
  );
  for (const [name, turns] of Object.entries(turnsByName)) console.log(row(name, summed(turns)));
}

function at(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
