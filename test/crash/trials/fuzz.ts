import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { bulkStatements, pastPartitions } from "../../support/bulk.ts";
import { makeOrganization, makeToken, settledUsage } from "../../support/service.ts";
import { countRows, readFuzzBooks } from "../fuzz/books.ts";
import { send } from "../fuzz/client.ts";
import { copyStore, type MadeCopy } from "../fuzz/copies.ts";
import type { Account, Intent } from "../fuzz/intent.ts";
import { Judge } from "../fuzz/judge.ts";
import { copyFaults } from "../fuzz/judge-books.ts";
import { Nodes } from "../fuzz/nodes.ts";
import { Intents } from "../fuzz/random-intent.ts";
import { FuzzUpstream } from "../fuzz/upstream.ts";
import { Random } from "../random.ts";
import { type Site, ViolationError } from "../site.ts";
import { createDatabase } from "../stores.ts";

/** Requests of a run in a soak, of which twenty make 100,000. The tests send a fifth of them to each store. */
const REQUESTS = 5_000;
const TESTED_SHARE = 0.2;
const AT_ONCE = 32;
const REQUESTS_A_STEP = 200;
const ACCOUNTS = 7;
const POOR_CREDITS = "0.5";
/** Requests of months ago, which retention removes. */
const HISTORY = 400;
const HISTORY_AGE_DAYS = 65;
const DAY_MS = 86_400_000;
const LOOK_EVERY_MS = 20;
/** A repetition is sent this long after its request, while that is running. */
const AT_ONCE_AFTER_MS = 10;
/** A killed service's holds are free again long before. */
const FREED_WITHIN_MS = 180_000;

/**
 * Sends random requests to all endpoints, which an adversarial upstream answers on all wires, while services are
 * killed, prices replaced, old requests removed and copies made. An independent judge then compares the books with what
 * the clients received and what the upstream wrote.
 */
export async function fuzz(site: Site, random: Random, trial: string): Promise<void> {
  const directory = join(site.directory, trial);
  await mkdir(directory);
  const name = trial.replaceAll(/\W/g, "_");
  const seeds = { requests: random.between(0, 2 ** 31), events: random.between(0, 2 ** 31) };
  const made = new Map<string, Intent>();
  const upstream = await FuzzUpstream.open(made);
  const nodes = await Nodes.start(directory, upstream, await createDatabase(site.postgres?.server.url, name));
  try {
    const accounts = await makeAccounts(nodes);
    await writeHistory(nodes, accounts);
    const intents = new Intents(new Random(seeds.requests), { trial, accounts, made });
    const count = Math.round(REQUESTS * (Number.isFinite(site.limits.slackMs) ? 1 : TESTED_SHARE));
    const run = new Run(nodes, intents, count);
    const copies = await run.play(new Random(seeds.events), directory, name);
    const faults = await judge(nodes, accounts, run.intents, copies);
    note(site, run.intents, nodes, copies);
    await writeFile(join(directory, "faults.txt"), faults.join("\n"));
    if (faults.length > 0) throw new ViolationError(faults);
  } finally {
    await writeFile(join(directory, "services.log"), await nodes.stop("SIGKILL"));
    await upstream.close();
  }
}

async function makeAccounts(nodes: Nodes): Promise<Account[]> {
  const accounts: Account[] = [];
  for (let index = 0; index < ACCOUNTS; index += 1) {
    const isPoor = index === ACCOUNTS - 1;
    const first = await makeOrganization(nodes.first, isPoor ? POOR_CREDITS : "1000000");
    // Every second account has a token with a cap, which its requests never reach.
    const second = await makeToken(nodes.first, first.id, index % 2 === 0 ? { cap: 100_000 } : {});
    accounts.push({ id: first.id, tokens: [first, second], isPoor });
  }
  nodes.readModelsWith(accounts[0]?.tokens[0]?.token ?? "");
  return accounts;
}

/** Adds requests of months ago, and starts a service again, which sums up the usage of every day before it removes them. */
async function writeHistory(nodes: Nodes, [account]: Account[]): Promise<void> {
  const organizationId = account?.id ?? "";
  const { grants } = await readFuzzBooks(nodes.place);
  const grantId = grants.find((grant) => grant.organization_id === organizationId)?.id ?? "";
  const fromMs = Date.now() - HISTORY_AGE_DAYS * DAY_MS;
  const statements = [
    ...bulkStatements(nodes.store, { organizationId, grantId, count: HISTORY, fromMs, makesToken: true }),
    emptyDaysAfter(fromMs + DAY_MS),
  ];
  if (nodes.store === "sqlite") {
    const database = new DatabaseSync(nodes.place, { timeout: 60_000 });
    for (const statement of statements) database.exec(statement);
    database.close();
  } else {
    const client = new pg.Client({ connectionString: nodes.place });
    await client.connect();
    for (const statement of [...pastPartitions(fromMs), ...statements]) await client.query(statement);
    await client.end();
  }
  await nodes.restart(0);
  // The next start removes old requests once each of their days is summed up.
  await untilRows(nodes, "usage_day_done", HISTORY_AGE_DAYS);
}

/** Returns SQL that notes the days from one on as summed up: nothing happened on them. */
function emptyDaysAfter(fromMs: number): string {
  const days: string[] = [];
  for (let day = fromMs - (fromMs % DAY_MS) + DAY_MS; day < Date.now() - DAY_MS; day += DAY_MS) {
    days.push(`(${day}, ${Date.now()})`);
  }
  return `INSERT INTO usage_day_done (day, done_at) VALUES ${days.join(", ")}`;
}

/** The requests of a run, and what is done to the services meanwhile. */
class Run {
  readonly intents: Intent[] = [];
  readonly #nodes: Nodes;
  readonly #random: Intents;
  readonly #count: number;
  /** Requests that may begin before the next step has ended: some run during each step. */
  #most = 2 * REQUESTS_A_STEP;

  constructor(nodes: Nodes, random: Intents, count: number) {
    this.#nodes = nodes;
    this.#random = random;
    this.#count = count;
  }

  /** Resolves with the copies that were made when all requests have ended. */
  async play(random: Random, directory: string, name: string): Promise<MadeCopy[]> {
    const playing = Promise.all(Array.from({ length: AT_ONCE }, () => this.#sendAll()));
    // A failed step ends it with an error of its own.
    playing.catch(() => {});
    const copying: Promise<MadeCopy>[] = [];
    const steps = Math.ceil(this.#count / REQUESTS_A_STEP);
    for (let step = 1; step < steps; step += 1) {
      while (this.intents.length < step * REQUESTS_A_STEP) await sleep(LOOK_EVERY_MS);
      if (step % 2 === 1) await this.#nodes.restart(random.between(0, this.#nodes.count - 1));
      await this.#nodes.reload();
      // Its commands use the first node, which a step restarts only after they have begun.
      if (step === 2) copying.push(copyStore(this.#nodes, directory, `${name}_copy`));
      this.#most += REQUESTS_A_STEP;
    }
    this.#most = this.#count;
    await playing;
    return Promise.all(copying);
  }

  async #sendAll(): Promise<void> {
    while (this.intents.length < this.#count) {
      if (this.intents.length >= this.#most) {
        await sleep(LOOK_EVERY_MS);
        continue;
      }
      const intent = this.#random.next();
      this.intents.push(intent);
      await this.#sendOne(intent, this.intents.length);
    }
  }

  /** Sends a request and its repetitions: some while it runs, the others afterwards. */
  async #sendOne(intent: Intent, number: number): Promise<void> {
    const sendTo = async (at: number, repetition: Parameters<typeof send>[3]) => {
      const { node, baseUrl } = await this.#nodes.running(at % this.#nodes.count);
      return send(baseUrl, node, intent, repetition);
    };
    const sent: Promise<unknown>[] = [sendTo(number, "first")];
    for (const { repetition, isAtOnce } of intent.repetitions) {
      if (!isAtOnce) continue;
      await sleep(AT_ONCE_AFTER_MS);
      sent.push(sendTo(number + 1, repetition));
    }
    await Promise.all(sent);
    for (const { repetition, isAtOnce } of intent.repetitions) if (!isAtOnce) await sendTo(number + 1, repetition);
  }
}

/** Resolves when a table has so many rows, or when it has had the time for that. */
async function untilRows({ place }: Nodes, table: string, count: number): Promise<void> {
  const until = Date.now() + FREED_WITHIN_MS;
  while ((await countRows(place, table)) < count && Date.now() < until) await sleep(10 * LOOK_EVERY_MS);
}

/** Waits until nothing is held, verifies the books with the service's own command, and judges them independently. */
async function judge(nodes: Nodes, accounts: Account[], intents: Intent[], copies: MadeCopy[]): Promise<string[]> {
  const waiting = new AbortController();
  const settled = accounts.map(({ tokens: [first] }) => settledUsage(nodes.first, first?.token ?? ""));
  const late = sleep(FREED_WITHIN_MS, "late", { signal: waiting.signal }).catch(() => "stopped");
  const isLate = (await Promise.race([Promise.all(settled), late])) === "late";
  waiting.abort();
  await untilRows(nodes, "closing", 1);
  const verified = await nodes.first.tollgate("ledger", "verify").then(
    () => [],
    (error: Error) => [`ledger verify: ${error.message}`],
  );
  await nodes.stop("SIGTERM");
  const books = await readFuzzBooks(nodes.place);
  const faults = [...verified, ...new Judge(books, nodes).faults(intents)];
  if (!intents.some(({ calls }) => calls.some(({ end }) => end === "cut"))) faults.push("no kill cut an answer off");
  if (isLate) faults.push("credits are still held");
  if (books.closings.length === 0) faults.push("retention has removed nothing");
  for (const copy of copies) faults.push(...copy.faults, ...copyFaults(copy.books, books));
  return faults;
}

/** Notes the figures of a run for the table of the soak. */
function note({ answers }: Site, intents: Intent[], { kills, reloads }: Nodes, copies: MadeCopy[]): void {
  const add = (what: string, count = 1) => answers.set(what, (answers.get(what) ?? 0) + count);
  add("requests", intents.length);
  add("kills", kills.length);
  add("price reloads", reloads);
  add("copies", copies.length);
  add("copies to PostgreSQL", copies.filter(({ isTransferred }) => isTransferred).length);
  for (const { calls, model } of intents) {
    const isTranslated = model.endsWith("-translated");
    if (isTranslated) add("to translated answers", calls.length);
    if (isTranslated) add("translated answers", calls.filter(({ end }) => end === "complete").length);
    for (const { repetition, status, end } of calls) {
      if (repetition !== "first") add("repetitions");
      add(end === "error" ? `status ${status}` : `${end}`);
    }
  }
}
