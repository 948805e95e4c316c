import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { UpstreamError } from "../errors.ts";
import { Circuit } from "../gateway/circuit.ts";
import { HealthFile, readHealth } from "./health-file.ts";

let dataDir: string;
let circuit: Circuit;
let file: HealthFile;
const at = { ms: 1_000_000 };
const warnings: string[] = [];
const log = { debug() {}, info() {}, warn: (_fields: object, line: string) => void warnings.push(line), error() {} };

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "tollgate-test-"));
  circuit = new Circuit({ providerId: "up", model: "m" }, true);
  file = new HealthFile({ dataDir, health: (nowMs) => [circuit.health(nowMs)], clock: () => at.ms, log });
  warnings.length = 0;
});

afterEach(async () => {
  await file.stop();
  await rm(dataDir, { recursive: true, force: true });
});

test("tells what a running service knows, and nothing of one that has stopped or died", async () => {
  expect(readHealth(dataDir, at.ms)).toBeUndefined();
  file.start();
  await expect.poll(() => readHealth(dataDir, at.ms)).toEqual([circuit.health(at.ms)]);
  circuit.failed(new UpstreamError("timeout", "late"), at.ms, at.ms);
  await expect
    .poll(() => readHealth(dataDir, at.ms)?.[0]?.lastFailure)
    .toEqual({
      failure: "timeout",
      atMs: at.ms,
    });
  expect(readHealth(dataDir, at.ms + 30_000)).toHaveLength(1);
  expect(readHealth(dataDir, at.ms + 30_001)).toBeUndefined();
  await file.stop();
  expect(readHealth(dataDir, at.ms)).toBeUndefined();
  expect(await readdir(dataDir)).toEqual([]);
});

test("says once that it cannot be written, and what is no such file tells nothing", async () => {
  await rm(dataDir, { recursive: true });
  file.start();
  await expect.poll(() => warnings).toHaveLength(1);
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(warnings).toHaveLength(1);
  await file.stop();
  const other = await mkdtemp(join(tmpdir(), "tollgate-test-"));
  await writeFile(join(other, "routes.json"), "{");
  expect(readHealth(other, at.ms)).toBeUndefined();
  await rm(other, { recursive: true });
});
