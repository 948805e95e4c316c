import { afterAll, beforeAll, describe, test } from "vitest";
import { NoPostgresError } from "../support/postgres-server.ts";
import { NoSmallDiskError } from "../support/small-disk.ts";
import { Campaign } from "./campaign.ts";
import { NoProgramError, type StoreKind } from "./place.ts";
import { type TrialGroup, trialsOf } from "./trials.ts";

/**
 * Holds live for a fortieth of their default. Durations are checked only in a soak test, because here the machine may be
 * busy with other tests.
 */
const OPTIONS = { shortenedBy: 40, streamShare: 0.5, slackMs: Number.POSITIVE_INFINITY, patienceMs: 300_000 };
/** Errors of a machine that lacks what a trial needs. */
const CANNOT_RUN = [NoSmallDiskError, NoPostgresError, NoProgramError];
/** Only a hanging trial takes this long. */
const TRIAL_TIMEOUT_MS = 1_800_000;

/** Runs the trials of a store, each as often as the tests have time for. */
export function crashTrials(store: StoreKind, group: TrialGroup = "crashes"): void {
  describe(`${group} on ${store}`, () => {
    let campaign: Campaign;
    beforeAll(() => {
      campaign = new Campaign(Date.now() % 1_000_000, { store, ...OPTIONS });
    });
    afterAll(() => campaign.close());

    const trials = trialsOf(store, group).filter(({ runs }) => runs[store] !== 0);
    // Not "$name", of which a report shows the first words.
    const named = trials.map((trial) => [trial.name, trial] as const);
    test.for(named)("%s", { timeout: TRIAL_TIMEOUT_MS }, async ([, trial], { skip }) => {
      try {
        for (let runs = trial.runs[store] ?? 0; runs > 0; runs -= 1) await campaign.run(trial);
        await campaign.finish(trial);
      } catch (error) {
        if (CANNOT_RUN.some((kind) => error instanceof kind)) skip((error as Error).message);
        throw error;
      }
    });
  });
}
