import pg from "pg";
import type { PostgresServer } from "../../support/postgres-server.ts";
import type { Sent } from "../client.ts";
import { mixedCalls, waitingStreams } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const STREAMS = 50;
const REQUESTS = 200;
/** By then, the free space inside existing files is used up. */
const ROUNDS_MAX = 10;
const LOG_FILES_MAX = 100;

/**
 * Fills the disk of the store while streams run, sends requests until one of them is refused, and frees the disk again.
 * PostgreSQL refuses first, and exits when its log has no space either. All streams must complete.
 */
export async function fillDisk(site: Site, random: Random, trial: string): Promise<void> {
  const { disk, postgres } = site;
  if (disk === undefined) throw new Error("this trial needs a disk that can be filled");
  if (postgres === undefined) {
    // A new log file is needed: SQLite can write on a full disk as long as its old log file has space.
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
  // A server that could not write its log may not have started again.
  await postgres?.server.stop();
  await postgres?.server.start();
  await site.untilReady();
  site.addTrial(trial, {});
  for (const round of rounds) site.addTrial(round, { storeWasUnavailable: true });
  await site.judge({ mayForgetOpenHolds: postgres !== undefined });
}

/** Requests and their trials. */
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
  throw new Error("the disk was full, and no request was refused");
}

/** Makes PostgreSQL create log files until there is no space for one. */
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

/** When a request is answered 503, /readyz must report it too, a moment before or after. */
async function tellsTheTruth(site: Site, random: Random, trial: string): Promise<void> {
  const readiness = async () => (await fetch(`${site.service.url}/readyz`)).status;
  const before = await readiness();
  const [sent] = site.send(mixedCalls(random, trial, 1, site));
  const status = await sent?.status;
  const after = await readiness();
  await sent?.ended;
  site.addTrial(trial, { storeWasUnavailable: true });
  if (status === 503 && before === 200 && after === 200) throw new Error("/readyz says ready, and requests get 503");
}
