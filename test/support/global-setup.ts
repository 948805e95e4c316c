import { spawnSync } from "node:child_process";
import { chmod, mkdtemp, readdir, readFile, rm, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";
import { buildConsole } from "../../scripts/build-console.ts";
import { bundle } from "../../scripts/bundle.ts";
import { findChromium } from "./chromium.ts";
import { ROOT } from "./documents.ts";
import { makePostgresServer, NoPostgresError, type PostgresServer, SMALL_TABLES } from "./postgres-server.ts";
import { eventsOf, makeOrganization, send, startProcess } from "./service.ts";

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
    /** True if this machine has kubectl, with kustomize in it. */
    hasKubectl: boolean;
  }
}

type Words = [program: string, ...words: string[]];
type ProgramKey = "hasNginx" | "hasSystemdAnalyze" | "hasRedis" | "hasPrometheus" | "hasKubectl";

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
  ["hasKubectl", { programs: [["kubectl", "kustomize", "--help"]], tests: "the check of the kustomized manifests" }],
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

/** The console and the service are built, a browser looked for, and a PostgreSQL server started for the whole run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  await buildConsole();
  // A run that watches tests the sources as they change.
  const removeBundle = project.vitest.config.watch ? undefined : await bundleService();
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
  const postgres = await startPostgres(project);
  await Promise.all([fillCompileCache(), postgres && fillCompileCache(postgres.url)]);
  return async () => {
    await postgres?.remove();
    await removeDirectory();
    await removeBundle?.();
  };
}

/** Names the bundle of a run by its process. */
const BUNDLE = /^\.dist-tests-(\d+)$/;

/**
 * Bundles the service and the commands as the package has them: each start of the source takes a third more processor time,
 * and a run starts hundreds. Beside src/, from where it finds the packages, the console and the documents.
 */
async function bundleService(): Promise<() => Promise<void>> {
  const ended = (await readdir(ROOT)).filter((name) => BUNDLE.test(name) && !isRunning(Number(BUNDLE.exec(name)?.[1])));
  for (const name of ended) await rm(join(ROOT, name), { recursive: true, force: true });
  const folder = join(ROOT, `.dist-tests-${process.pid}`);
  await bundle(folder, { "hosted-service": fileURLToPath(new URL("hosted-service.ts", import.meta.url)) });
  process.env.TESTED_MAIN = join(folder, "main.js");
  return () => rm(folder, { recursive: true, force: true });
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

function isOnPath([program, ...words]: Words): boolean {
  return spawnSync(program, words, { stdio: "ignore" }).status === 0;
}

/** The logs of a trial that went wrong lie in one of these, and stay. */
const KEPT = /^tollgate-crash-/;

/** Whatever the run, and what it starts, puts into the system's temporary directory goes into one that ends with it. */
async function makeTemporaryDirectory(): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(await temporaryPlace(), "tollgate-tests-"));
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

/** The directory of the file system that Linux has in memory. */
const MEMORY = "/dev/shm";
/** Several times what the files of a run take at once. */
const FREE_BYTES_MIN = 8 * 2 ** 30;

/**
 * Returns the directory for temporary files: in memory where there is plenty of it, unless TMPDIR states another one. A
 * database on a disk takes most of its processor time to make, and no test cuts the machine's power.
 */
async function temporaryPlace(): Promise<string> {
  if (process.env.TMPDIR !== undefined || process.platform !== "linux") return tmpdir();
  const mounts = (await readFile("/proc/self/mounts", "utf8")).split("\n").map((line) => line.split(" "));
  const [, , type, options = ""] = mounts.findLast(([, at]) => at === MEMORY) ?? [];
  // Containers often let no program be run from it.
  if (type !== "tmpfs" || options.split(",").includes("noexec")) return tmpdir();
  const { bavail, bsize } = await statfs(MEMORY);
  return Math.min(bavail * bsize, process.availableMemory()) < FREE_BYTES_MIN ? tmpdir() : MEMORY;
}

/**
 * Lets a service answer a request and exit, because a process writes to the compile cache only when it exits. The services
 * of the crash trials are killed, and each would compile everything again.
 */
async function fillCompileCache(databaseUrl?: string): Promise<void> {
  const service = await startProcess(databaseUrl === undefined ? {} : { databaseUrl });
  try {
    const { token } = await makeOrganization(service, "1");
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "Hello" }], stream: true };
    const answer = await send(service, "/v1/chat/completions", token, body);
    const events = eventsOf(await answer.text());
    if (events.at(-1) !== "[DONE]") throw new Error(`The first completion failed: ${answer.status} ${events.join()}`);
  } finally {
    await service.end();
  }
}

/**
 * One real PostgreSQL server for the whole run. Where there is none for the machine, the run says so in one line, and the
 * tests that need it are skipped; where there is one and it does not start, the run fails.
 */
async function startPostgres(project: TestProject): Promise<PostgresServer | undefined> {
  try {
    const server = await makePostgresServer({ settings: SMALL_TABLES });
    project.provide("postgresUrl", server.url);
    return server;
  } catch (error) {
    if (!(error instanceof NoPostgresError)) throw error;
    console.warn(`Left out: the tests on PostgreSQL, because ${error.message}.`);
    project.provide("postgresUrl", undefined);
    return undefined;
  }
}
