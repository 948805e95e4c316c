import { Random } from "./random.ts";
import { Site, type SiteOptions } from "./site.ts";
import type { Trial } from "./trials.ts";

/** Number of trials after which new organizations are created. */
const TRIALS_AN_ERA = 20;

/** A failed trial: the failures, how to repeat it, and the location of its logs. */
export class TrialError extends Error {
  constructor(message: string, options: { cause: unknown }) {
    super(message, options);
    this.name = "TrialError";
  }
}

/** Results of a campaign's trials. */
export interface Tally {
  runs: number;
  tookMs: number;
  /** Outcomes of requests as clients saw them, with counts. */
  answers: Map<string, number>;
}

/** Runs trials one after another on the same site, so that each starts with what earlier trials left behind. */
export class Campaign {
  readonly seed: number;
  readonly tallies = new Map<string, Tally>();
  /** Time to readiness after each kill. */
  readonly readyAfterMs: number[] = [];
  readonly #options: SiteOptions;
  readonly #sites = new Map<string, { site: Site; trials: number }>();

  constructor(seed: number, options: SiteOptions) {
    this.seed = seed;
    this.#options = options;
  }

  /** Runs a trial once. Rejects with TrialError; the next trial then starts on a new site. */
  async run(trial: Trial): Promise<void> {
    const tally = this.tallies.get(trial.key) ?? { runs: 0, tookMs: 0, answers: new Map<string, number>() };
    this.tallies.set(trial.key, tally);
    tally.runs += 1;
    const startedAt = performance.now();
    const place = await this.#place(trial);
    place.trials += 1;
    const name = `${trial.key}.${tally.runs}`;
    const random = new Random(hashOf(`${this.seed} ${name}`));
    await this.#guard(place.site, trial, async () => {
      await trial.run(place.site, random, name);
      if (place.trials % TRIALS_AN_ERA === 0) await beginEra(place.site);
    }).finally(() => {
      tally.tookMs += performance.now() - startedAt;
    });
    for (const [answer, count] of place.site.answers)
      tally.answers.set(answer, (tally.answers.get(answer) ?? 0) + count);
    place.site.answers.clear();
  }

  /** Checks the trials that are still pending. Rejects with TrialError. */
  async finish(trial: Trial): Promise<void> {
    const place = this.#sites.get(this.#keyOf(trial));
    if (place !== undefined) await this.#guard(place.site, trial, () => place.site.judge({ all: true }));
  }

  async close(): Promise<void> {
    for (const { site } of this.#sites.values()) await this.#end(site, false);
    this.#sites.clear();
  }

  async #place(trial: Trial) {
    const key = this.#keyOf(trial);
    const place = this.#sites.get(key) ?? {
      site: await Site.open({ ...this.#options, ...this.#siteOf(trial) }),
      trials: 0,
    };
    this.#sites.set(key, place);
    return place;
  }

  #keyOf(trial: Trial): string {
    return JSON.stringify(this.#siteOf(trial));
  }

  #siteOf({ site }: Trial): Partial<SiteOptions> {
    return site?.(this.#options.store) ?? {};
  }

  async #guard(site: Site, { key }: Trial, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      for (const [options, place] of this.#sites) if (place.site === site) this.#sites.delete(options);
      await this.#end(site, true);
      const again = `npm run soak -- --store ${this.#options.store} --seed ${this.seed} --trials ${key}`;
      throw new TrialError(`${String(error)}\nAgain: ${again}\nLogs: ${site.directory}`, { cause: error });
    }
  }

  async #end(site: Site, keepsLogs: boolean): Promise<void> {
    this.readyAfterMs.push(...site.readyAfterMs);
    await site.close({ keepsLogs });
  }
}

async function beginEra(site: Site): Promise<void> {
  await site.judge({ all: true });
  await site.makeOrganizations();
}

/** FNV-1a hash of a text. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}
