import { expect, test } from "vitest";
import { sharedRun } from "./shared-run.ts";

function startedRuns() {
  const runs: PromiseWithResolvers<number>[] = [];
  const run = sharedRun(() => {
    const next = Promise.withResolvers<number>();
    runs.push(next);
    return next.promise;
  });
  return { runs, run };
}

test("callers during a run share it, and the next caller starts another", async () => {
  const { runs, run } = startedRuns();
  const both = Promise.all([run(), run()]);
  runs[0]?.resolve(1);
  expect(await both).toEqual([1, 1]);
  const next = run();
  runs[1]?.resolve(2);
  expect([await next, runs.length]).toEqual([2, 2]);
});

test("the end of a run is awaited without starting one, and a failure does not prevent the next run", async () => {
  const { runs, run } = startedRuns();
  await run.ended();
  expect(runs).toEqual([]);
  const failed = expect(run()).rejects.toThrow("first");
  const ended = expect(run.ended()).rejects.toThrow("first");
  runs[0]?.reject(new Error("first"));
  await Promise.all([failed, ended]);
  const second = run();
  runs[1]?.resolve(2);
  await run.ended();
  expect(await second).toBe(2);
});
