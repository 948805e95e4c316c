/**
 * `npm run soak -- --store sqlite|postgres [--minutes 20] [--seed N] [--trials kill,points] [--shortened-by 10]`: splits
 * the streams of all fixtures at every byte once, and then runs the trials of `test/crash/` again and again until the minutes
 * are over, each for its share of them. Prints what was run as a table; exits with 1 on any violation. `--trials splits`
 * runs the first part alone. `--trials counts`, or the names in `test/support/counts.ts`, plays tests with many more cases,
 * `--cases 0.1` a tenth of those. `--trials nodes --before FOLDER` runs that trial once, for the minutes: its nodes start from a
 * checkout of an earlier version, and are replaced by this one under load.
 */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Campaign, TrialError } from "../test/crash/campaign.ts";
import { NoProgramError, type StoreKind } from "../test/crash/place.ts";
import { type Trial, trialsOf } from "../test/crash/trials.ts";
import { COUNTS, type CountName, playCases } from "../test/support/counts.ts";
import { NoSmallDiskError } from "../test/support/small-disk.ts";
import { differencesOf, placesIn, splitCases } from "../test/wires/splits.ts";

const READY_LONGEST_MS = 3_000;
const SPLITS = "splits";
/** All tests with more cases. */
const ALL_COUNTS = "counts";
/** The trial that can start from an earlier version. */
const UPGRADES = "nodes";

interface Order {
  store: StoreKind;
  seed: number;
  minutes: number;
  trials: Trial[];
  /** True to split the streams of the fixtures too. */
  hasSplits: boolean;
  /** Tests to play with more cases, and the share of these. */
  counts: CountName[];
  cases: number;
  shortenedBy: number;
  /** Checkout of the version from which the nodes are upgraded. */
  before: string | undefined;
}

function readOrder(): Order {
  const { values } = parseArgs({
    options: {
      store: { type: "string", default: "sqlite" },
      seed: { type: "string", default: String(Date.now() % 1_000_000) },
      minutes: { type: "string", default: "20" },
      trials: { type: "string" },
      "shortened-by": { type: "string", default: "10" },
      before: { type: "string" },
      cases: { type: "string", default: "1" },
    },
  });
  const { store } = values;
  if (store !== "sqlite" && store !== "postgres") throw new Error(`--store: found ${store}; allowed: sqlite, postgres`);
  const known = trialsOf(store);
  const keys = values.trials?.split(",") ?? [SPLITS, ...known.map(({ key }) => key)];
  const countable = (Object.keys(COUNTS) as CountName[]).filter((name) => !known.some(({ key }) => key === name));
  const counts = keys.includes(ALL_COUNTS) ? countable : countable.filter((name) => keys.includes(name));
  const parts: string[] = [SPLITS, ALL_COUNTS, ...countable];
  const chosen = keys.filter((key) => !parts.includes(key));
  const trials = chosen.map((key) => {
    const trial = known.find((one) => one.key === key);
    if (trial !== undefined) return trial;
    throw new Error(`--trials: found ${key}; allowed: ${[...parts, ...known.map((one) => one.key)].join(", ")}`);
  });
  const hasSplits = keys.includes(SPLITS);
  const before = values.before === undefined ? undefined : resolve(values.before);
  if (before !== undefined && keys.join() !== UPGRADES) throw new Error(`--before: only with --trials ${UPGRADES}`);
  if (before !== undefined && !existsSync(join(before, "node_modules")))
    throw new Error(`--before: ${before} is not a checkout with its packages`);
  const number = (name: "seed" | "minutes" | "shortened-by" | "cases") => {
    const found = Number(values[name]);
    if (Number.isFinite(found) && found >= 0) return found;
    throw new Error(`--${name}: found ${values[name]}; allowed: a number`);
  };
  return {
    store,
    trials,
    hasSplits,
    counts,
    cases: number("cases"),
    seed: number("seed"),
    minutes: number("minutes"),
    shortenedBy: number("shortened-by"),
    before,
  };
}

/** Splits the stream of each fixture at every byte; returns the number of splits that change an answer or its charge. */
async function splitStreams(): Promise<number> {
  let splits = 0;
  let faults = 0;
  for (const one of splitCases()) {
    const places = placesIn(one, Number.POSITIVE_INFINITY);
    const differences = await differencesOf(one, places);
    splits += places.length;
    faults += differences.length;
    if (differences[0] !== undefined)
      console.error(
        `${one.name}: an answer that is split after ${differences[0].place} of ${one.bytes.length} bytes differs`,
      );
  }
  console.log(`Streams split at every byte: ${splits} splits, ${faults} violations.`);
  return faults;
}

/** Plays tests with more cases; returns the number of those that failed. */
async function playCounts({ counts, cases, seed }: Order): Promise<number> {
  let faults = 0;
  for (const name of counts) {
    const { soak, unit } = COUNTS[name];
    const count = Math.ceil(soak * cases);
    const startedAt = performance.now();
    const failure = await playCases(name, { count, seed }).catch((error: Error) => error.message);
    if (failure !== undefined) {
      console.error(failure);
      faults += 1;
    }
    const seconds = Math.round((performance.now() - startedAt) / 1_000);
    const outcome = failure === undefined ? "0 violations" : "violated";
    console.log(`${count.toLocaleString("en")} ${unit}: ${outcome}, ${seconds} s, seed ${seed}.`);
  }
  return faults;
}

/** The trial that has had least of its share of the time. */
function nextTrial(trials: Trial[], { tallies }: Campaign): Trial | undefined {
  const had = ({ key, soak }: Trial) => (tallies.get(key)?.tookMs ?? 0) / soak.share;
  const left = trials.filter(({ key, soak }) => (tallies.get(key)?.runs ?? 0) < soak.runs);
  return left.toSorted((a, b) => had(a) - had(b))[0];
}

async function soak({
  store,
  seed,
  minutes,
  trials,
  shortenedBy,
  before,
}: Order): Promise<{ campaign: Campaign; faults: Map<string, number> }> {
  const durations = { streamShare: 1, slackMs: 1_000, patienceMs: 10_000 };
  const loadMs = before === undefined ? undefined : minutes * 60_000;
  const campaign = new Campaign(seed, { store, shortenedBy, ...durations, before, loadMs });
  const faults = new Map<string, number>();
  const left = new Set(trials);
  const attempt = async (trial: Trial, work: () => Promise<void>) => {
    try {
      await work();
    } catch (error) {
      if (error instanceof NoSmallDiskError || error instanceof NoProgramError) {
        console.log(`Left out: ${trial.name}, because ${error.message}.`);
        left.delete(trial);
        return;
      }
      if (!(error instanceof TrialError)) throw error;
      faults.set(trial.key, (faults.get(trial.key) ?? 0) + 1);
      console.error(`\n${trial.key}: ${error.message}\n`);
    }
  };
  const until = performance.now() + minutes * 60_000;
  while (performance.now() < until) {
    const trial = nextTrial([...left], campaign);
    if (trial === undefined) break;
    await attempt(trial, () => campaign.run(trial));
    if (before !== undefined) break;
  }
  for (const trial of left) await attempt(trial, () => campaign.finish(trial));
  await campaign.close();
  return { campaign, faults };
}

function print({ store, seed, trials, shortenedBy }: Order, campaign: Campaign, faults: Map<string, number>): void {
  console.log(
    `\nStore ${store}, seed ${seed}; holds live 120/${shortenedBy} s, are renewed every 10/${shortenedBy} s.\n`,
  );
  console.log("| trial | runs | what the clients saw | violations |\n|---|---|---|---|");
  for (const { key, name } of trials) {
    const { runs, answers } = campaign.tallies.get(key) ?? { runs: 0, answers: new Map<string, number>() };
    const seen = [...answers].sort().map(([answer, count]) => `${count} ${answer}`);
    console.log(`| ${name} | ${runs} | ${seen.join(", ")} | ${faults.get(key) ?? 0} |`);
  }
  const times = campaign.readyAfterMs.toSorted((a, b) => a - b).map(Math.round);
  if (times.length === 0) return;
  const late = times.filter((ms) => ms > READY_LONGEST_MS).length;
  console.log(
    `\nReady again after a kill: ${times.length} times, median ${times[times.length >> 1]} ms, longest ${times.at(-1)} ms, ${late} above ${READY_LONGEST_MS} ms.`,
  );
  if (late > 0) faults.set("ready", late);
}

const order = readOrder();
console.log(`Soak: ${order.minutes} minutes on ${order.store}, seed ${order.seed}.`);
const partFaults = (order.hasSplits ? await splitStreams() : 0) + (await playCounts(order));
if (order.trials.length === 0) process.exit(partFaults === 0 ? 0 : 1);
const { campaign, faults } = await soak(order);
if (partFaults > 0) faults.set("parts", partFaults);
print(order, campaign, faults);
process.exit(faults.size === 0 ? 0 : 1);
