import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { watchFiles } from "./watch.ts";

let directory: string;
let stop: () => Promise<void>;
let changes = 0;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "tollgate-watch-"));
  changes = 0;
});
afterEach(async () => {
  await stop();
  rmSync(directory, { recursive: true });
});

const path = (name: string) => join(directory, name);

async function start(file: string): Promise<void> {
  const onChange = async () => {
    changes += 1;
  };
  stop = watchFiles(() => [file], onChange, 10);
  await expect.poll(() => changes).toBe(1);
}

test("a file that is written, replaced, removed and made again has changed each time", async () => {
  writeFileSync(path("a"), "1");
  await start(path("a"));
  writeFileSync(path("a"), "2");
  await expect.poll(() => changes).toBe(2);
  writeFileSync(path("b"), "3");
  renameSync(path("b"), path("a"));
  await expect.poll(() => changes).toBe(3);
  rmSync(path("a"));
  await expect.poll(() => changes).toBe(4);
  writeFileSync(path("a"), "3");
  await expect.poll(() => changes).toBe(5);
});

test("the target of a symbolic link is watched", async () => {
  mkdirSync(path("folder"));
  writeFileSync(path("folder/target"), "1");
  symlinkSync(path("folder/target"), path("a"));
  await start(path("a"));
  writeFileSync(path("folder/target"), "2");
  await expect.poll(() => changes).toBe(2);
});

test("a file in a directory whose link is replaced has changed", async () => {
  for (const name of ["one", "two"]) {
    mkdirSync(path(name));
    writeFileSync(path(`${name}/a`), name);
  }
  symlinkSync(path("one"), path("current"));
  await start(path("current/a"));
  symlinkSync(path("two"), path("next"));
  renameSync(path("next"), path("current"));
  await expect.poll(() => changes).toBe(2);
});

test("the same content, other files and a pipe are no change", async () => {
  writeFileSync(path("a"), "1");
  await start(path("a"));
  writeFileSync(path("a"), "1");
  writeFileSync(path("b"), "2");
  await sleep(200);
  expect(changes).toBe(1);
});
