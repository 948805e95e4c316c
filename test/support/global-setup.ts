import { spawnSync } from "node:child_process";
import { chmod, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { buildConsole } from "../../scripts/build-console.ts";
import { findChromium } from "./chromium.ts";
import { makePostgresServer, NoPostgresError } from "./postgres-server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Address of a PostgreSQL server for the whole run; undefined where this machine cannot run one. */
    postgresUrl: string | undefined;
    /** Path of a Chromium; undefined where this machine has none. */
    chromiumPath: string | undefined;
    /** True if this machine has nginx, and openssl for its certificate. */
    hasNginx: boolean;
    /** True if this machine has systemd's programs, running or not. */
    hasSystemdAnalyze: boolean;
    /** True if this machine has a Redis server. */
    hasRedis: boolean;
    /** True if this machine has prometheus and promtool. */
    hasPrometheus: boolean;
  }
}

type Words = [program: string, ...words: string[]];
type ProgramKey = "hasNginx" | "hasSystemdAnalyze" | "hasRedis" | "hasPrometheus";

/** Programs of the system that some tests need; without them these tests are left out. */
const PROGRAMS: [ProgramKey, { programs: Words[]; tests: string }][] = [
  [
    "hasNginx",
    {
      programs: [
        ["nginx", "-v"],
        ["openssl", "version"],
      ],
      tests: "the tests behind nginx",
    },
  ],
  ["hasSystemdAnalyze", { programs: [["systemd-analyze", "--version"]], tests: "the checks of the systemd unit" }],
  ["hasRedis", { programs: [["redis-server", "--version"]], tests: "the tests of shared limits" }],
  [
    "hasPrometheus",
    {
      programs: [
        ["prometheus", "--version"],
        ["promtool", "--version"],
      ],
      tests: "the tests of the metrics",
    },
  ],
];

/** The console is built, a browser looked for, and a PostgreSQL server started for the whole run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  await buildConsole();
  const chromiumPath = findChromium();
  if (chromiumPath === undefined) {
    console.warn("Left out: the tests in a browser, because there is no Chromium on the PATH or at CHROMIUM_PATH.");
  }
  project.provide("chromiumPath", chromiumPath);
  for (const [key, { programs, tests }] of PROGRAMS) {
    const missing = programs.find((words) => !isOnPath(words));
    if (missing !== undefined) console.warn(`Left out: ${tests}, because ${missing[0]} is not on the PATH.`);
    project.provide(key, missing === undefined);
  }
  const removeDirectory = await makeTemporaryDirectory();
  const stopPostgres = await startPostgres(project);
  return async () => {
    await stopPostgres();
    await removeDirectory();
  };
}

function isOnPath([program, ...words]: Words): boolean {
  return spawnSync(program, words, { stdio: "ignore" }).status === 0;
}

/** The logs of a trial that went wrong lie in one of these, and stay. */
const KEPT = /^tollgate-crash-/;

/** Whatever the run, and what it starts, puts into the system's temporary directory goes into one that ends with it. */
async function makeTemporaryDirectory(): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(tmpdir(), "tollgate-tests-"));
  // PostgreSQL runs as another user, who finds its own in it and need not see the rest.
  await chmod(directory, 0o711);
  process.env.TMPDIR = directory;
  // Each service has a new data directory, and so no compile cache of its own: without this one it starts far slower.
  process.env.NODE_COMPILE_CACHE = join(directory, "compile-cache");
  return async () => {
    const names = await readdir(directory);
    const gone = names.filter((name) => !KEPT.test(name));
    const places = gone.length === names.length ? [directory] : gone.map((name) => join(directory, name));
    for (const place of places) await rm(place, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  };
}

/**
 * One real PostgreSQL server for the whole run. Where there is none for the machine, the run says so in one line, and the
 * tests that need it are skipped; where there is one and it does not start, the run fails.
 */
async function startPostgres(project: TestProject): Promise<() => Promise<void>> {
  try {
    const server = await makePostgresServer();
    project.provide("postgresUrl", server.url);
    return () => server.remove();
  } catch (error) {
    if (!(error instanceof NoPostgresError)) throw error;
    console.warn(`Left out: the tests on PostgreSQL, because ${error.message}.`);
    project.provide("postgresUrl", undefined);
    return async () => {};
  }
}
