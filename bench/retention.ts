import { Retention } from "../src/ledger/retention.ts";
import type { Store } from "../src/stores/store.ts";
import { createLog } from "../src/telemetry/logger.ts";

/**
 * Runs retention once, as a service does, and prints how long it took, and the steps that the store was asked for. A step
 * that removes is a transaction: on SQLite, all others wait for it.
 */
export async function closeMonths(store: Store, organizationId: string, requestMonths: number): Promise<void> {
  const stepsMs = { digest: [] as number[], sum: [] as number[], remove: [] as number[] };
  const timed = <Parameters extends unknown[], Result>(
    kind: keyof typeof stepsMs,
    step: (...parameters: Parameters) => Promise<Result>,
  ) => {
    return async (...parameters: Parameters) => {
      const startedAtMs = performance.now();
      const result = await step(...parameters);
      stepsMs[kind].push(performance.now() - startedAtMs);
      return result;
    };
  };
  const { closings, monthDigests } = store;
  const before = (await closings.find(organizationId))?.requests ?? 0;
  const retention = new Retention({
    store: {
      ...store,
      closings: {
        ...closings,
        sum: timed("sum", closings.sum),
        remove: timed("remove", closings.remove),
      },
      monthDigests: { ...monthDigests, add: timed("digest", monthDigests.add) },
    },
    live: {
      config: {
        ...{ retention: { requestMonths }, conversations: { keepDays: 30 }, responses: { keepHours: 24 } },
        statements: { numberPrefix: "", letterhead: {} },
      },
    },
    isUsageSummedUp: async () => true,
    spooled: async () => 0,
    clock: Date.now,
    now: () => performance.now(),
    log: createLog("warn"),
  });
  const startedAtMs = performance.now();
  await retention.run();
  const seconds = (performance.now() - startedAtMs) / 1_000;
  const requests = ((await closings.find(organizationId))?.requests ?? 0) - before;
  console.log(`${requests} requests closed and removed in ${seconds.toFixed(1)} s`);
  for (const [kind, times] of Object.entries(stepsMs)) {
    times.sort((a, b) => a - b);
    const [p50 = 0, p99 = 0] = [0.5, 0.99].map((share) => times[Math.floor(times.length * share)]);
    const sum = times.reduce((all, time) => all + time, 0) / 1_000;
    console.log(
      `${kind}: ${times.length} steps, ${sum.toFixed(1)} s, p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`,
    );
  }
}
