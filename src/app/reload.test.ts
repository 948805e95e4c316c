import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import type { Config } from "../config.ts";
import { OperatorError } from "../errors.ts";
import { Reloads, type ReloadsOptions } from "./reload.ts";
import type { LiveParts } from "./upstreams.ts";

let directory: string;
let reloads: Reloads;
let reads = 0;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "tollgate-watch-"));
  reads = 0;
});
afterEach(async () => {
  await reloads.stop();
  rmSync(directory, { recursive: true });
});

const path = (name: string) => join(directory, name);

/** Watches a file whose configuration always has a mistake, and counts how often it is read. */
async function start(file: string): Promise<void> {
  const load = async (files: Set<string>) => {
    files.add(file);
    reads += 1;
    throw new OperatorError("a mistake");
  };
  reloads = new Reloads({
    source: { load, files: new Set([file]), apply: () => {} },
    live: { config: {} as Config } as LiveParts,
    log: keepLog(),
  } as unknown as ReloadsOptions);
  reloads.start();
  await expect.poll(() => reads).toBe(1);
}

test("a file that is written, replaced, removed and made again is read each time", async () => {
  writeFileSync(path("a"), "1");
  await start(path("a"));
  writeFileSync(path("a"), "2");
  await expect.poll(() => reads).toBe(2);
  writeFileSync(path("b"), "3");
  renameSync(path("b"), path("a"));
  await expect.poll(() => reads).toBe(3);
  rmSync(path("a"));
  await expect.poll(() => reads).toBe(4);
  writeFileSync(path("a"), "3");
  await expect.poll(() => reads).toBe(5);
});

test("the target of a symbolic link is watched", async () => {
  mkdirSync(path("folder"));
  writeFileSync(path("folder/target"), "1");
  symlinkSync(path("folder/target"), path("a"));
  await start(path("a"));
  writeFileSync(path("folder/target"), "2");
  await expect.poll(() => reads).toBe(2);
});

test("a file in a directory whose link is replaced is read again", async () => {
  for (const name of ["one", "two"]) {
    mkdirSync(path(name));
    writeFileSync(path(`${name}/a`), name);
  }
  symlinkSync(path("one"), path("current"));
  await start(path("current/a"));
  symlinkSync(path("two"), path("next"));
  renameSync(path("next"), path("current"));
  await expect.poll(() => reads).toBe(2);
});

test("other files are not read, and none after the stop", async () => {
  writeFileSync(path("a"), "1");
  await start(path("a"));
  writeFileSync(path("b"), "2");
  await sleep(1_000);
  expect(reads).toBe(1);
  await reloads.stop();
  writeFileSync(path("a"), "2");
  await sleep(1_000);
  expect(reads).toBe(1);
});
