import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { bulkStatements } from "../../support/bulk.ts";
import { runTollgate } from "../../support/command-line.ts";
import { makeOrganization } from "../../support/service.ts";
import { type Books, readBooks, type Source } from "../books.ts";
import { Checker } from "../checker.ts";
import type { Sent } from "../client.ts";
import { scriptOf } from "../load.ts";
import type { Random } from "../random.ts";
import { type Record, readRecords } from "../records.ts";
import type { Site } from "../site.ts";
import { createDatabase } from "../stores.ts";

/** Requests per second in a soak; the tests send a share of them. */
const RATE = 500;
const RATE_LEAST = 0.9;
const TICK_MS = 20;
/** More running requests would only overload a busy machine. */
const RUNNING_MAX = 200;
/** Requests that have ended when the backup begins, in a soak. */
const ANSWERED_BEFORE = 500;
/** Older requests, so that the backup takes a while. */
const HISTORY = 100_000;
const SECOND_MS = 1_000;

/**
 * Backs the store up under short requests, and restores it elsewhere. The copy must contain each answer that was complete
 * when the backup began, exactly once, and its books must balance.
 */
export async function backUp(site: Site, random: Random, trial: string): Promise<void> {
  const share = site.options.streamShare ** 2;
  await addHistory(site, Math.round(HISTORY * share ** 2));
  const load = new Load(site, random, trial, RATE * share);
  const file = join(site.directory, `${trial}.db`);
  const { beganAt, rate } = await load.during(ANSWERED_BEFORE * share, () => {
    return site.service.tollgate("store", "backup", file);
  });
  const mustHold = [...readRecords(site.directory, trial)].filter(([, { client }]) => {
    return client.end === "all" && client.endedAt < beganAt;
  });
  if (mustHold.length === 0) throw new Error("no answer was complete when the backup began");
  if (Number.isFinite(site.limits.slackMs) && rate < RATE_LEAST * RATE * share)
    throw new Error(`only ${Math.round(rate)} requests were sent a second`);
  const { source, verified } = await restore(site, trial, file);
  if (!verified) throw new Error("the restored books do not balance");
  checkCopy(site, await readBooks(source, idsOf(site)), new Map(mustHold));
  site.answers.set("found in the copy", mustHold.length);
  // Beside other tests, the store may take longer than a statement may.
  site.addTrial(trial, { storeWasUnavailable: !Number.isFinite(site.limits.slackMs) });
  await site.judge();
}

const idsOf = ({ organizations }: Site) => organizations.map(({ id }) => id);

/** Sends short requests at a rate, as long as the service keeps up with them. */
class Load {
  #answered = 0;
  readonly #startedAt = performance.now();
  readonly #sent: Sent[] = [];
  readonly #timer: NodeJS.Timeout;

  constructor(site: Site, random: Random, trial: string, perSecond: number) {
    this.#timer = setInterval(() => {
      const due = ((performance.now() - this.#startedAt) * perSecond) / SECOND_MS;
      while (this.#sent.length < due && this.#sent.length - this.#answered < RUNNING_MAX) {
        const number = this.#sent.length;
        const organization = site.organizations[number % site.organizations.length];
        if (organization === undefined) return;
        const script = scriptOf(`${trial}-${number}`, { words: random.between(1, 3), paceMs: 1 });
        for (const sent of site.send([{ script, streamed: random.chance(0.5), organization }])) {
          this.#sent.push(sent);
          void sent.ended.then(() => (this.#answered += 1));
        }
      }
    }, TICK_MS);
  }

  /**
   * Does something once this many requests have ended, and then ends the load. Returns the time at which it began, and the
   * number of requests that were sent a second.
   */
  async during(answers: number, work: () => Promise<unknown>): Promise<{ beganAt: number; rate: number }> {
    try {
      while (this.#answered < answers) await sleep(TICK_MS);
      const beganAt = Date.now();
      await work();
      const rate = (this.#sent.length * SECOND_MS) / (performance.now() - this.#startedAt);
      return { beganAt, rate };
    } finally {
      clearInterval(this.#timer);
      await Promise.all(this.#sent.map(({ ended }) => ended));
    }
  }
}

/** Adds charged requests of an organization that the checker does not read. */
async function addHistory(site: Site, count: number): Promise<void> {
  const { id: organizationId } = await makeOrganization(site.service, "1000000");
  const grantOf = `SELECT id FROM credit_grant WHERE organization_id = '${organizationId}'`;
  const bulk = { organizationId, count, fromMs: Date.now() - count * SECOND_MS };
  const { postgres } = site;
  if (postgres === undefined) {
    const database = new DatabaseSync(join(site.dataDir, "tollgate.db"), { timeout: 60_000 });
    const grantId = String(database.prepare(grantOf).get()?.id);
    for (const statement of bulkStatements("sqlite", { ...bulk, grantId, makesToken: true })) database.exec(statement);
    database.close();
    return;
  }
  const client = new pg.Client({ connectionString: postgres.server.url });
  await client.connect();
  const { rows } = await client.query<{ id: string }>(grantOf);
  const grantId = rows[0]?.id ?? "";
  for (const statement of bulkStatements("postgres", { ...bulk, grantId, makesToken: true }))
    await client.query(statement);
  await client.end();
}

/** Restores a backup into another directory, or another database of the same server, and verifies it there. */
async function restore(site: Site, trial: string, file: string): Promise<{ source: Source; verified: boolean }> {
  const dataDir = join(site.directory, `${trial}.restored`);
  await mkdir(dataDir, { mode: 0o700 });
  const { postgres } = site;
  const url = await createDatabase(postgres?.server.url, `${trial}.restored`);
  const environment: { [name: string]: string } = url === undefined ? {} : { DATABASE_URL: url };
  const run = (...words: string[]) => runTollgate([...words, "--data-dir", dataDir], dataDir, environment);
  const restored = await run("store", "restore", file);
  if (restored.code !== 0) throw new Error(`the backup was not restored: ${restored.stderr}`);
  const { code } = await run("ledger", "verify");
  const source: Source =
    url === undefined
      ? { kind: "sqlite", path: join(dataDir, "tollgate.db"), launcher: undefined }
      : { kind: "postgres", url };
  return { source, verified: code === 0 };
}

/** Throws where the copy lacks one of these answers, has it twice, or charged it otherwise. */
function checkCopy({ limits }: Site, books: Books, records: Map<string, Record>): void {
  const checker = new Checker(limits);
  const actions = { records, repeated: new Map(), killedAt: undefined, bookedAt: undefined };
  const flags = { storeWasUnavailable: false, wasSuspended: false, lacksCredits: false };
  const faults = [...checker.checkBooks(books), ...checker.checkCharges(books, { ...actions, ...flags })];
  if (faults.length > 0) throw new Error(`the copy has ${faults.length} faults: ${faults.slice(0, 5).join("; ")}`);
}
