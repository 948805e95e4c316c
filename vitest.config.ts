import { defineConfig, type TestProjectInlineConfiguration } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The longest files, which do not delay the end of the run if they start first. Those of the first row mostly wait. */
const LONGEST = [
  /\/test\/(crash\/(partitions|interruptions|postgres)|hostile\/attacks|shutdown)\.test/,
  /\/test\/(memory|model|crash\/(sqlite|fuzz)|books\/histories|console\/accessible)\.test/,
  /\/src\/(credits\/decide\.property|stores\/(postgres\/postgres|sqlite\/sqlite))\.test/,
  /\/test\//,
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankOf = ({ moduleId }: TestSpecification) => {
      const rank = LONGEST.findIndex((pattern) => pattern.test(moduleId));
      return rank === -1 ? LONGEST.length : rank;
    };
    return (await super.sort(files)).toSorted((a, b) => rankOf(a) - rankOf(b));
  }
}

/** Tests that replace a module, which may be loaded already in a process that is shared. */
const ISOLATED = ["src/ledger/commit-queue.test.ts"];
const TESTS = ["{src,test,overspend}/**/*.test.ts", "console/src/**/*.test.{ts,tsx}"];

/** Options of every test. */
const COMMON: TestProjectInlineConfiguration["test"] = {
  pool: "forks",
  setupFiles: ["test/support/random-seed.ts"],
  // Only tests that hang exceed these, even on a busy machine.
  testTimeout: 600_000,
  hookTimeout: 600_000,
  expect: { poll: { timeout: 60_000 } },
  // Node itself loads the bundle of the setup.
  server: { deps: { external: [/\/\.dist-tests-\d+\//] } },
};

export default defineConfig({
  test: {
    // Runs once, and provides its values to both projects; a project that extended this configuration would run it again.
    globalSetup: ["test/support/global-setup.ts"],
    // More than the two cores of a small machine, because many tests wait for a service or for a time to pass.
    maxWorkers: 6,
    sequence: { sequencer: LongestFirst },
    teardownTimeout: 60_000,
    projects: [
      // These files share the modules of their process, because loading the modules takes longer than most of the tests.
      { test: { ...COMMON, name: "shared", include: TESTS, exclude: ISOLATED, isolate: false } },
      { test: { ...COMMON, name: "isolated", include: ISOLATED } },
    ],
  },
});
