import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { splitStore } from "./support/command-line.ts";
import { startProcess } from "./support/service.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const directory = mkdtempSync(join(tmpdir(), "tollgate-start-up-"));
const dataDir = join(directory, "data");
const cache = join(dataDir, "compile-cache");

/** Writes the address of each module that the main thread loads to a file, and at the end Node's own ones. */
const RECORDER = `import { appendFileSync } from "node:fs"; import { registerHooks } from "node:module";
  const record = (name) => appendFileSync(process.env.LOADED, name + "\\n");
  registerHooks({ load(url, context, next) { record(url); return next(url, context); } });
  process.on("exit", () => process.moduleLoadList.forEach(record));`;
const RECORDING = `--import=data:text/javascript,${encodeURIComponent(RECORDER)}`;

function run(words: string[], environment: Record<string, string> = {}, flags: string[] = []) {
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, TMPDIR: directory, ...environment };
  const { status, stderr } = spawnSync(process.execPath, [...flags, MAIN, ...words], { cwd: directory, env });
  expect({ status, stderr: splitStore(String(stderr)).stderr }).toEqual({ status: 0, stderr: "" });
}

beforeAll(() => run(["org", "create", "x", "--data-dir", dataDir]));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describe("a command loads what it uses", () => {
  const file = join(directory, "loaded");
  beforeEach(() => rmSync(file, { force: true }));
  const loaded = () => readFileSync(file, "utf8").trim().split("\n");

  /** The packages that were loaded, without the service's own modules. */
  function packages(): string[] {
    const names = loaded().flatMap((url) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1] ?? []);
    return [...new Set(names)].sort();
  }

  /** The packages that a command loads. */
  function packagesOf(...words: string[]): string[] {
    run([...words, "--data-dir", dataDir], { LOADED: file }, [RECORDING]);
    return packages();
  }

  test.each(["token list", "org list", "credits balance --org org_playground", "ledger verify", "org create y"])(
    "tollgate %s loads the command line, and neither the schema of the configuration nor the service",
    (words) => {
      expect(packagesOf(...words.split(" "))).toEqual(["commander"]);
    },
  );

  test("tollgate config check loads neither a store nor the HTTP server", () => {
    const found = packagesOf("config", "check");
    expect(found).toContain("typebox");
    for (const name of ["fastify", "pg"]) expect(found).not.toContain(name);
    expect(loaded().filter((url) => /\/src\/stores\/(postgres|queries|sqlite)\//.test(url))).toEqual([]);
  });

  test("tollgate serve on SQLite loads no package of an optional part, and not Node's own client", async () => {
    const service = await startProcess({ environment: { LOADED: file, NODE_OPTIONS: RECORDING } });
    await service.end("SIGTERM");
    expect(packages()).toContain("fastify");
    expect(
      packages().filter((name) => /^(pg|gpt-tokenizer|@ai-sdk\/.*|@opentelemetry\/.*|@redis\/.*)$/.test(name)),
    ).toEqual([]);
    // Fastify's compilers of schemas, which nothing uses.
    expect(packages().filter((name) => name.endsWith("-compiler"))).toEqual([]);
    expect(loaded()).toContain("NativeModule http");
    // 12 MiB, which an ES module loads that imports node:http.
    expect(loaded()).not.toContain("NativeModule internal/deps/undici/undici");
  });
});

describe("the compile cache", () => {
  const list = () => run(["org", "list", "--data-dir", dataDir]);
  const remake = (mode: number) => {
    rmSync(cache, { recursive: true, force: true });
    mkdirSync(cache);
    chmodSync(cache, mode);
  };

  test("lies in the data directory, for its owner alone, and nowhere else", () => {
    list();
    expect(statSync(cache).mode & 0o777).toBe(0o700);
    expect(readdirSync(cache)).not.toEqual([]);
    expect(existsSync(join(directory, "node-compile-cache"))).toBe(false);
  });

  test.each([0o777, 0o770, 0o755])("is not used where others could write to it or read it: mode %o", (mode) => {
    remake(mode);
    list();
    expect(readdirSync(cache)).toEqual([]);
  });

  test.skipIf(process.getuid?.() !== 0)("is not used where another user planted it", () => {
    remake(0o700);
    chownSync(cache, 12_345, 12_345);
    list();
    expect(readdirSync(cache)).toEqual([]);
  });

  test("is not used where a link was planted", () => {
    const target = join(directory, "target");
    rmSync(cache, { recursive: true, force: true });
    mkdirSync(target, { mode: 0o700 });
    symlinkSync(target, cache);
    list();
    expect(readdirSync(target)).toEqual([]);
    rmSync(cache);
  });

  test("is not used in a data directory that others can write to", () => {
    chmodSync(dataDir, 0o777);
    list();
    expect(existsSync(cache)).toBe(false);
    chmodSync(dataDir, 0o700);
  });

  test("is not made in a folder without a store", () => {
    const empty = join(directory, "empty");
    mkdirSync(empty);
    run(["config", "check", "--data-dir", empty]);
    expect(readdirSync(empty)).toEqual([]);
  });
});

test.each([
  [192, 1],
  [256, 0],
])("a start with %i MiB of memory says so %i times, because it needs 256", async (memoryMiB, times) => {
  const limited = `process.constrainedMemory = () => ${memoryMiB} * 2 ** 20`;
  const environment = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(limited)}` };
  const service = await startProcess({ environment });
  await service.end();
  const warning = `"memoryMiB":${memoryMiB},"leastMiB":256,"msg":"the process has too little memory`;
  expect(service.output().split(warning)).toHaveLength(times + 1);
});
