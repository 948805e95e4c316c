import type { StoreKind } from "./place.ts";
import type { Random } from "./random.ts";
import type { Site, SiteOptions } from "./site.ts";
import { absentStore, slowStore } from "./trials/away.ts";
import { backUp } from "./trials/backup.ts";
import { killFirstStarts } from "./trials/first-start.ts";
import { freeze } from "./trials/freeze.ts";
import { fillDisk } from "./trials/full-disk.ts";
import { fuzz } from "./trials/fuzz.ts";
import { killCommands } from "./trials/grants.ts";
import { playHistories } from "./trials/histories.ts";
import { killAtRandomMoment } from "./trials/kill-service.ts";
import { killAtNamedPoints } from "./trials/named-points.ts";
import { loseNodes } from "./trials/nodes.ts";
import { playNoisyNeighbour } from "./trials/noisy-neighbour.ts";
import { cutOff, outliveHolds } from "./trials/partitions.ts";
import { cutCommits, failOver, killPostgres } from "./trials/postgres.ts";
import { terminateUnderStreams } from "./trials/terminate.ts";
import { killOneOfTwo } from "./trials/two-nodes.ts";

export interface Trial {
  /** Name on the command line. */
  key: string;
  name: string;
  /** Number of runs within the tests, for each supported store; 0 to run it in a soak test only. */
  runs: { [store in StoreKind]?: number };
  /** Maximum number of runs in a soak test, and its share of the time. */
  soak: { runs: number; share: number };
  /** Options of its site. */
  site?: (store: StoreKind) => Partial<SiteOptions>;
  run(site: Site, random: Random, trial: string): Promise<void>;
}

/** On a slow machine too, no running answer is aborted because its hold could not be renewed. */
const DEFAULT_LIVES = { shortenedBy: 1 };
/** The same for trials that wait until the holds of a killed service have ended. */
const LONGER_LIVES = { shortenedBy: 5 };
/** The same on PostgreSQL alone: on SQLite no other process can end a hold, so no answer waits for its renewal. */
const longerLivesIfShared = (store: StoreKind) => (store === "postgres" ? LONGER_LIVES : {});

const CRASHES: readonly Trial[] = [
  {
    key: "kill",
    name: "kill -9 of the service at a random moment under 200 requests",
    // On PostgreSQL the trial of two services does the same and more.
    runs: { sqlite: 1, postgres: 0 },
    soak: { runs: 1000, share: 20 },
    run: killAtRandomMoment,
  },
  {
    key: "points",
    name: "kill -9 of the service with five requests at each of five named points",
    runs: { sqlite: 1, postgres: 1 },
    soak: { runs: 50, share: 4 },
    // Reading the five long answers that their clients do not read holds the event loop, and so the renewals, up.
    site: longerLivesIfShared,
    run: killAtNamedPoints,
  },
  {
    key: "two-nodes",
    name: "kill -9 of one of two services under 200 requests",
    runs: { postgres: 1 },
    soak: { runs: 50, share: 4 },
    run: killOneOfTwo,
  },
  {
    key: "nodes",
    name: "three nodes behind nginx under mixed load: one frozen, one replaced, one killed, one more replaced",
    runs: { postgres: 1 },
    soak: { runs: 20, share: 6 },
    site: () => ({ ...LONGER_LIVES, programs: ["nginx", "redis-server"] }),
    run: loseNodes,
  },
  {
    key: "grants",
    name: "kill -9 of three commands that grant credits, which are run again",
    runs: { sqlite: 1, postgres: 1 },
    soak: { runs: 50, share: 1 },
    site: longerLivesIfShared,
    run: killCommands,
  },
  {
    key: "first-start",
    name: "kill -9 of two services that start together on an empty store, three times",
    runs: { sqlite: 1, postgres: 1 },
    soak: { runs: 20, share: 1 },
    run: killFirstStarts,
  },
  {
    key: "backup",
    name: "a backup under 500 requests a second, restored elsewhere",
    runs: { sqlite: 1, postgres: 1 },
    soak: { runs: 20, share: 2 },
    site: () => DEFAULT_LIVES,
    run: backUp,
  },
  {
    key: "postgres-kill",
    name: "kill -9 of PostgreSQL under 200 requests",
    runs: { postgres: 1 },
    soak: { runs: 100, share: 6 },
    run: killPostgres,
  },
  {
    key: "failover",
    name: "kill -9 of PostgreSQL under 200 requests, and a synchronous replica takes over",
    runs: { postgres: 1 },
    soak: { runs: 50, share: 4 },
    run: failOver,
  },
  ...(["before", "during", "after"] as const).map((cuts) => ({
    key: `cut-${cuts}`,
    name: `the connection cut ${cuts} COMMIT, 20 times`,
    runs: { postgres: 1 },
    soak: { runs: 15, share: 2 },
    site: () => LONGER_LIVES,
    run: cutCommits(cuts),
  })),
  ...[
    { eachMs: 50, runs: { sqlite: 0, postgres: 1 } },
    { eachMs: 500, runs: { sqlite: 1, postgres: 0 } },
    { eachMs: 5_000, runs: { sqlite: 0, postgres: 1 } },
  ].map(({ eachMs, runs }) => ({
    key: `slow-${eachMs}`,
    name: `a store that is ${eachMs} ms slower, under 100 requests`,
    runs,
    soak: { runs: 10, share: 1 },
    site: longerLivesIfShared,
    run: slowStore(eachMs),
  })),
  {
    key: "absent",
    name: "a store that becomes unavailable under 50 streams, and at the next start",
    runs: { postgres: 1 },
    soak: { runs: 10, share: 2 },
    site: () => DEFAULT_LIVES,
    run: absentStore,
  },
  {
    // On SQLite no answer is aborted when the lives of holds pass, because no other process can end them.
    key: "full-disk",
    name: "a disk that is full under 250 requests",
    runs: { sqlite: 1, postgres: 1 },
    soak: { runs: 10, share: 2 },
    site: (store) => ({ diskMegabytes: 56, ...(store === "postgres" && DEFAULT_LIVES) }),
    run: fillDisk,
  },
  {
    key: "terminate",
    name: "SIGTERM under 200 streams",
    runs: { sqlite: 1, postgres: 0 },
    soak: { runs: 50, share: 3 },
    site: longerLivesIfShared,
    run: terminateUnderStreams,
  },
  {
    key: "histories",
    name: "200 random histories of operations against a plain model",
    // The suite of the histories itself runs with the tests.
    runs: { sqlite: 0, postgres: 0 },
    soak: { runs: 500, share: 4 },
    run: playHistories,
  },
  {
    key: "noisy-neighbour",
    name: "one customer's worst on each shared resource, beside another that sends five requests a second",
    // A short form without times runs with the attacks.
    runs: { sqlite: 0, postgres: 0 },
    soak: { runs: 5, share: 8 },
    run: playNoisyNeighbour,
  },
];

/** On a slow machine too, these trials end before it has passed. */
const LONG_RECOVERY = { recoveryMs: 480_000 };

/**
 * Trials of one of two nodes that is cut off from the store. They and the interruptions mostly wait, so that both run beside
 * the others.
 */
const PARTITIONS: readonly Trial[] = [
  {
    key: "cut-off",
    name: "one of two nodes cut off from the store for longer than a hold's life, within the recovery time",
    runs: { postgres: 1 },
    soak: { runs: 200, share: 6 },
    site: () => LONG_RECOVERY,
    run: cutOff("within the recovery time"),
  },
  {
    key: "cut-off-long",
    name: "one of two nodes cut off from the store beyond the recovery time",
    runs: { postgres: 1 },
    soak: { runs: 200, share: 6 },
    run: cutOff("beyond the recovery time"),
  },
];

/** Trials of a store that is unavailable for two nodes, and of a node that is suspended. */
const INTERRUPTIONS: readonly Trial[] = [
  {
    key: "outage",
    name: "a store that is unavailable for two nodes for longer than a hold's life",
    runs: { postgres: 1 },
    soak: { runs: 200, share: 6 },
    site: () => LONG_RECOVERY,
    run: outliveHolds,
  },
  ...(["for a moment", "for longer than the life of a hold"] as const).map((lasts, index) => ({
    key: index === 0 ? "freeze" : "suspend",
    name: `one of two nodes stopped in the middle of a transaction, ${lasts}`,
    runs: { postgres: 1 },
    soak: { runs: 200, share: 6 },
    run: freeze(lasts),
  })),
];

/** Random requests and answers, judged independently. */
const FUZZES: readonly Trial[] = [
  {
    key: "fuzz",
    name: "random requests to an adversarial upstream, with kills, departures, repeated keys, reloads, retention and copies",
    runs: { sqlite: 1, postgres: 1 },
    soak: { runs: 20, share: 20 },
    run: fuzz,
  },
];

export const TRIALS: readonly Trial[] = [...CRASHES, ...PARTITIONS, ...INTERRUPTIONS, ...FUZZES];

export function trialsOf(store: StoreKind, group: TrialGroup | "all" = "all"): Trial[] {
  const chosen = { all: TRIALS, crashes: CRASHES, partitions: PARTITIONS, interruptions: INTERRUPTIONS, fuzz: FUZZES }[
    group
  ];
  return chosen.filter(({ runs }) => runs[store] !== undefined);
}

export type TrialGroup = "crashes" | "partitions" | "interruptions" | "fuzz";
