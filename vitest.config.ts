import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** These take longest, and wait more than they work: what begins with them is not waited for at the end. */
const LONGEST = /\/test\/(crash|model\.test)/;

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification) => Number(LONGEST.test(moduleId));
    return (await super.sort(files)).toSorted((a, b) => isLong(b) - isLong(a));
  }
}

export default defineConfig({
  test: {
    include: ["src/**/*.test.ts", "test/**/*.test.ts", "console/src/**/*.test.{ts,tsx}"],
    globalSetup: ["test/support/global-setup.ts"],
    pool: "forks",
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    // Only what hangs is to fail by these, on a machine that is busy with other things as well.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    teardownTimeout: 60_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
