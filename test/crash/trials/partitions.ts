import { setTimeout as sleep } from "node:timers/promises";
import type { ServiceProcess } from "../../support/service.ts";
import type { Call, Sent } from "../client.ts";
import { dearStream, waitingStreams } from "../load.ts";
import type { Random } from "../random.ts";
import { readRecords } from "../records.ts";
import type { Site } from "../site.ts";

/** Enough credits for the holds of ten requests of up to 4,096 tokens, but not for eleven. */
const CREDITS_FOR_TEN = "0.1";
const STREAMS = 5;
const ASK_EVERY_MS = 100;

/**
 * Cuts one of two nodes off from PostgreSQL while its requests hold all credits of an organization, for longer than the life
 * of a hold. Half of its answers end immediately; the node aborts the others before their holds can be expired. The other
 * node requests the same credits continuously, and gets none before the recovery time has passed.
 */
export function cutOff(lasts: "within the recovery time" | "beyond the recovery time") {
  return async (site: Site, random: Random, trial: string): Promise<void> => {
    const other = await site.startNeighbor();
    try {
      const organization = await site.makeOrganization(CREDITS_FOR_TEN);
      const [finishing, waiting] = await hold(site, trial, organization);
      const reconnect = await partition(site, random);
      const freeFromMs = (await firstExpiry(site, organization)) + site.limits.recoveryMs;
      await site.letGo(trial);
      const asking = new Asking(site, other, `${trial}.other`, organization);
      await all(finishing);
      await sleep(1.5 * site.limits.holdLifeMs);
      await all(waiting);
      if (lasts === "beyond the recovery time") await asking.untilSpent();
      await asking.stop();
      const earlyMs = freeFromMs - asking.firstAnsweredAt;
      if (earlyMs > 0) throw new Error(`credits of a node that was cut off were free ${earlyMs} ms too early`);
      await reconnect();
      await site.untilReady();
      mustBeCut(site, `${trial}.waiting`);
      site.addTrial(trial, { storeWasUnavailable: true });
      site.addTrial(`${trial}.waiting`, { storeWasUnavailable: true });
      site.addTrial(asking.trial, { storeWasUnavailable: false, lacksCredits: true });
      await site.judge({ all: true });
      await checkShortfall(site, organization, lasts === "beyond the recovery time");
    } finally {
      await other.end("SIGTERM");
    }
  };
}

/** Cuts two nodes off from PostgreSQL for longer than the life of a hold, while streams of both hold all credits. */
export async function outliveHolds(site: Site, random: Random, trial: string): Promise<void> {
  const { proxy } = site.postgres ?? {};
  if (proxy === undefined) throw new Error("this trial is for PostgreSQL");
  const other = await site.startNeighbor({ isProxied: true });
  try {
    const organization = await site.makeOrganization(CREDITS_FOR_TEN);
    const [finishing, waiting] = await hold(site, trial, organization);
    const second = `${trial}.apart`;
    const others = waitingStreams(random, second, STREAMS, site).map((call) => site.clients.send(other.baseUrl, call));
    await Promise.all(others.map(({ status }) => status));
    const reconnect = await partition(site, random);
    await site.letGo(trial);
    await Promise.all([all(finishing), all(waiting), all(others)]);
    await reconnect();
    await site.untilReady();
    const asking = new Asking(site, other, `${trial}.other`, organization);
    await asking.untilSpent();
    await asking.stop();
    for (const cut of [`${trial}.waiting`, second]) mustBeCut(site, cut);
    for (const name of [trial, `${trial}.waiting`, second]) site.addTrial(name, { storeWasUnavailable: true });
    site.addTrial(asking.trial, { storeWasUnavailable: true, lacksCredits: true });
    await site.judge({ all: true });
    await checkShortfall(site, organization, false);
  } finally {
    await other.end("SIGTERM");
  }
}

/** Sends streams that together hold all credits: half of them wait until the trial is released, half of them forever. */
async function hold(site: Site, trial: string, organization: Call["organization"]): Promise<[Sent[], Sent[]]> {
  const sent = [trial, `${trial}.waiting`].map((name) => {
    const calls = Array.from({ length: STREAMS }, (_, index) => dearStream(`${name}-${index}`, organization));
    return site.send(calls);
  });
  const statuses = await Promise.all(sent.flat().map(({ status }) => status));
  if (statuses.some((status) => status !== 200)) throw new Error(`the credits did not suffice: ${statuses.join()}`);
  return sent as [Sent[], Sent[]];
}

/** Returns when the first of an organization's open holds expires. */
async function firstExpiry(site: Site, { id }: Call["organization"]): Promise<number> {
  const { holds } = await site.readBooks();
  const open = holds.filter(({ organization_id, state }) => organization_id === id && state === "open");
  if (open.length !== 2 * STREAMS) throw new Error(`${open.length} holds are open`);
  return Math.min(...open.map(({ expires_at }) => Number(expires_at)));
}

/** Refuses the service's connections, or drops all their data. Returns the function that ends this. */
async function partition({ postgres }: Site, random: Random): Promise<() => Promise<void>> {
  const { proxy } = postgres ?? {};
  if (proxy === undefined) throw new Error("this trial is for PostgreSQL");
  proxy.isFrozen = random.chance(0.5);
  if (!proxy.isFrozen) await proxy.leave();
  return async () => {
    if (proxy.isFrozen) await proxy.leave();
    proxy.isFrozen = false;
    await proxy.comeBack();
  };
}

/** Requests an organization's credits continuously, one request at a time. */
class Asking {
  readonly trial: string;
  answered = 0;
  firstAnsweredAt = Number.POSITIVE_INFINITY;
  readonly #site: Site;
  readonly #asked: Promise<void>;
  #areSpent = false;
  #isOver = false;

  constructor(site: Site, service: ServiceProcess, trial: string, organization: Call["organization"]) {
    this.trial = trial;
    this.#site = site;
    this.#asked = this.#ask(service, organization);
  }

  async #ask(service: ServiceProcess, organization: Call["organization"]): Promise<void> {
    for (let index = 0; !this.#isOver; index += 1) {
      const call = dearStream(`${this.trial}-${index}`, organization, { waitsAfterWords: null });
      const sent = this.#site.clients.send(service.baseUrl, call);
      await sent.ended;
      const status = await sent.status;
      if (status === 200) {
        this.answered += 1;
        this.firstAnsweredAt = Math.min(this.firstAnsweredAt, Date.now());
      } else await sleep(ASK_EVERY_MS);
      // Held credits are refused with 429.
      this.#areSpent = status === 402;
    }
  }

  /** Resolves when the credits are available again and all are spent. */
  async untilSpent(): Promise<void> {
    const { limits, options } = this.#site;
    const until = Date.now() + 2 * limits.holdLifeMs + limits.recoveryMs + options.patienceMs;
    while (this.answered === 0 || !this.#areSpent) {
      if (Date.now() > until) throw new Error("the credits of a node that was cut off never came back");
      await sleep(ASK_EVERY_MS);
    }
  }

  stop(): Promise<void> {
    this.#isOver = true;
    return this.#asked;
  }
}

async function all(sent: Sent[]): Promise<void> {
  await Promise.all(sent.map(({ ended }) => ended));
}

/** Checks that no answer outlives its hold. */
export function mustBeCut(site: Site, trial: string): void {
  const ends = [...readRecords(site.directory, trial).values()].map(({ client }) => client.code ?? client.end);
  if (ends.some((end) => end !== "store_unavailable")) throw new Error(`streams without holds ended ${ends.join()}`);
}

/** Rejects unless there is a shortfall exactly where the recovery time had passed. */
async function checkShortfall(site: Site, { id }: Call["organization"], mayLack: boolean): Promise<void> {
  const { holds } = await site.readBooks();
  const shortfall = holds.filter((hold) => hold.organization_id === id).reduce((sum, hold) => sum + hold.shortfall, 0n);
  if (shortfall > 0n !== mayLack) throw new Error(`the shortfall is ${shortfall} micro-credits`);
}
