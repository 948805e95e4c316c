import pg from "pg";
import type { PostgresServer } from "../../support/postgres-server.ts";
import type { Sent } from "../client.ts";
import { mixedCalls, waitingStreams } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const STREAMS = 50;
const REQUESTS = 200;
/** Rounds after which the free space inside files is used up. */
const ROUNDS_MAX = 10;
const LOG_FILES_MAX = 100;

/**
 * Fills the disk under the store while streams run, lets requests come until one of them is refused, and makes room again.
 * PostgreSQL refuses first, and ends when its log has no room either. Every one of the streams ends whole.
 */
export async function fillDisk(site: Site, random: Random, trial: string): Promise<void> {
  const { disk, postgres } = site;
  if (disk === undefined) throw new Error("this trial needs a disk that can be filled");
  if (postgres === undefined) {
    // Its log begins anew: on a disk that is full, SQLite writes on as long as there is room in an old one.
    await site.terminate();
    await site.start();
  }
  const running = site.send(waitingStreams(random, trial, STREAMS, site));
  await Promise.all(running.map(({ status }) => status));
  await disk.fill();
  const [sent, rounds] = await sendUntilRefused(site, random, trial);
  if (postgres !== undefined) await exhaustLog(postgres.server);
  await site.letGo(trial);
  await Promise.all([...running, ...sent].map(({ ended }) => ended));
  await tellsTheTruth(site, random, `${trial}.after`);
  await disk.free();
  // A PostgreSQL that could not write its log may not have restarted.
  await postgres?.server.stop();
  await postgres?.server.start();
  await site.untilReady();
  site.addTrial(trial, {});
  for (const round of rounds) site.addTrial(round, { storeWasAway: true });
  await site.judge({ mayForgetOpenHolds: postgres !== undefined });
}

/** The requests, and the trials that they belong to. */
async function sendUntilRefused(site: Site, random: Random, trial: string): Promise<[Sent[], string[]]> {
  const all: Sent[] = [];
  const rounds: string[] = [];
  while (rounds.length < ROUNDS_MAX) {
    const round = `${trial}.full${rounds.length}`;
    const sent = site.send(mixedCalls(random, round, REQUESTS, site));
    rounds.push(round);
    all.push(...sent);
    const statuses = await Promise.all(sent.map(({ status }) => status));
    if (statuses.includes(503)) return [all, rounds];
  }
  throw new Error("the disk was full, and nobody noticed");
}

/** Lets PostgreSQL begin files of its log until it finds no room for one. */
async function exhaustLog({ url }: PostgresServer): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  const lost = new Promise<"lost">((resolve) => client.on("error", () => resolve("lost")));
  await client.connect();
  const begin = "SELECT pg_logical_emit_message(false, 'trial', 'full'), pg_switch_wal()";
  for (let begun = 0; begun < LOG_FILES_MAX; begun += 1) {
    const outcome = await Promise.race([
      lost,
      client.query(begin).then(
        () => "begun",
        () => "lost",
      ),
    ]);
    if (outcome === "lost") return;
  }
  await client.end();
  throw new Error("the disk was full, and PostgreSQL wrote its log on");
}

/** Checks that /readyz reports the outage to which a 503 refers, shortly before or after it. */
async function tellsTheTruth(site: Site, random: Random, trial: string): Promise<void> {
  const readiness = async () => (await fetch(`${site.service.url}/readyz`)).status;
  const before = await readiness();
  const [sent] = site.send(mixedCalls(random, trial, 1, site));
  const status = await sent?.status;
  const after = await readiness();
  await sent?.ended;
  site.addTrial(trial, { storeWasAway: true });
  if (status === 503 && before === 200 && after === 200) throw new Error("/readyz says ready, and requests get 503");
}
