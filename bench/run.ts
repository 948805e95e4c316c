/**
 * `npm run bench`: what the gate costs. Proxies, other gateways and Tollgate in front of the same upstream, in turns, each
 * with the same load; prints tables of throughput, times, processor time, allocations and memory. `bench/plan.ts` has the
 * options, bench/README.md explains them.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Contender, machineFacts, OTHERS } from "./contenders.ts";
import { measureSyncs } from "./disk.ts";
import { type Plan, readPlan } from "./plan.ts";
import { Processes, pause } from "./processes.ts";
import { type Cell, toMarkdown, toMemoryTable, toVariantTable } from "./report.ts";
import { hasWrk } from "./round.ts";
import { type Entrant, Rounds, WARM_UP_CONNECTIONS, WARM_UP_SECONDS_MAX } from "./rounds.ts";
import { CHECKOUT, Databases, startTollgate, type Variant } from "./tollgate.ts";
import { startUpstream } from "./upstreams.ts";

/** Time after starts and after the load before memory is read. */
const REST_SECONDS = 10;

const processes = new Processes(makeFolder());
const databases = new Databases();

function makeFolder(): string {
  const parent = join(tmpdir(), "tollgate-bench");
  mkdirSync(parent, { recursive: true });
  return mkdtempSync(join(parent, "run-"));
}

/** Starts the gateways that Tollgate is compared with; one that cannot start is left out. */
async function startOthers(names: readonly string[], upstream: string, notes: string[]): Promise<Contender[]> {
  const started: Contender[] = [];
  for (const name of names) {
    try {
      started.push(...(OTHERS[name] === undefined ? [] : [await OTHERS[name](processes, upstream, processes.folder)]));
    } catch (error) {
      notes.push(`Left out: ${name}: ${String(error)}`);
    }
  }
  return started;
}

/** Starts this checkout on each store and with each number of workers. */
async function startVariants({ variants, organizations }: Plan, upstream: string): Promise<Contender[]> {
  const started: Contender[] = [];
  for (const { store, workers, budgets } of variants) {
    const isPostgres = store === "postgres";
    const parts = [workers === 1 ? "" : `, ${workers} workers`, budgets === 0 ? "" : `, ${budgets} budgets`];
    const name = `Tollgate${isPostgres ? " on PostgreSQL" : ""}${parts.join("")}`;
    const variant: Variant = { name, checkout: CHECKOUT, workers, budgets, organizations: Math.max(...organizations) };
    if (isPostgres) variant.database = await databases.make();
    started.push(await startTollgate(processes, upstream, join(processes.folder, name), variant));
  }
  return started;
}

async function startBefore({ before, organizations }: Plan, upstream: string): Promise<Contender[]> {
  if (before === undefined) return [];
  const name = "Tollgate before";
  const variant = {
    name,
    checkout: resolve(before),
    workers: 1,
    budgets: 0,
    organizations: Math.max(...organizations),
  };
  return [await startTollgate(processes, upstream, join(processes.folder, name), variant)];
}

/** Returns the names of the entrants of this checkout: the first is compared with the others. */
function ownNames(entrants: readonly Entrant[], own: readonly Contender[]): string[] {
  return [...new Set(entrants.filter(({ contender }) => own.includes(contender)).map(({ name }) => name))];
}

async function main(): Promise<void> {
  const plan = readPlan();
  const upstream = await startUpstream(processes, processes.folder, plan.pace);
  const rounds = new Rounds(plan, processes);
  const others = await startOthers(plan.others, upstream.url, rounds.notes);
  const own = await startVariants(plan, upstream.url);
  const contenders = [...others, ...own, ...(await startBefore(plan, upstream.url))];
  await pause(REST_SECONDS * 1_000);
  rounds.readStartedMemory(contenders);
  const cells: Cell[] = [];
  const all: Entrant[] = [];
  for (const streamed of plan.kinds) {
    const entrants = await rounds.enter(contenders, streamed);
    await rounds.warmUp(entrants);
    for (const load of plan.loads) cells.push(...(await rounds.measureCells(entrants, load)));
    all.push(...entrants);
  }
  await pause(REST_SECONDS * 1_000);
  const memories = rounds.memories();
  for (const contender of contenders) await rounds.audit(contender);
  const [subject, ...variants] = ownNames(all, own);
  const comparison = { service: own[0]?.name, subject, variants, floor: all[0]?.name ?? "" };
  console.log(`\n${toMarkdown(cells, comparison)}${toVariantTable(cells, comparison)}`);
  console.log(`\n${toMemoryTable(memories, REST_SECONDS)}\n`);
  printFooter(plan, upstream.name);
  const { p50, p99 } = await measureSyncs(processes.folder);
  console.log(`To sync what one settlement writes takes this disk ${p50} ms (p50) and ${p99} ms (p99).`);
  for (const note of rounds.notes) console.log(note);
}

function printFooter({ loads, rounds, seconds, warmUp, promptBytes, pace }: Plan, upstream: string): void {
  const generator = hasWrk() && loads.every(({ rate }) => rate === undefined) ? "wrk" : "bench/generator.ts";
  const sentences = [
    `${machineFacts()}; load average at the end ${loadavg()[0]?.toFixed(1)}.`,
    `Upstream: ${upstream}; load: ${generator} in a process of its own on the same machine.`,
    `Prompts of ${promptBytes || "some 200"} bytes; streams of ${pace.events} events, ${pace.apartMs} ms apart.`,
    `Warm-up: ${warmUp} answers of each kind at ${WARM_UP_CONNECTIONS} connections, in at most ${WARM_UP_SECONDS_MAX} s.`,
    `${rounds} rounds of ${seconds} s each, in turns; each figure is their median, with the least and the most.`,
    "Ratios and differences are the medians of those of the rounds.",
    "Processor time includes that of the database server; memory does not.",
  ];
  console.log(sentences.join("\n"));
}

async function end(): Promise<void> {
  await processes.endAll();
  await databases.remove();
  rmSync(processes.folder, { recursive: true, force: true });
}

for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => end().then(() => process.exit(1)));
try {
  await main();
} catch (error) {
  console.error(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  await end();
}
