import { mkdtemp, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isoTime } from "../api/time.ts";
import { UpstreamError } from "../errors.ts";
import { Circuit } from "./circuit.ts";
import { HealthFile, readHealth } from "./route-health.ts";

let dataDir: string;
let circuit: Circuit;
let file: HealthFile;
const at = { ms: 1_000_000 };
const warnings: string[] = [];
const log = { debug() {}, info() {}, warn: (_fields: object, line: string) => void warnings.push(line), error() {} };

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "tollgate-test-"));
  circuit = new Circuit({ providerId: "up", model: "m" }, true);
  file = fileOf("a", circuit);
  warnings.length = 0;
});

function fileOf(name: string, circuit: Pick<Circuit, "health">): HealthFile {
  return new HealthFile({ dataDir, name, health: (nowMs) => [circuit.health(nowMs)], clock: () => at.ms, log });
}

afterEach(async () => {
  await file.stop();
  await rm(dataDir, { recursive: true, force: true });
});

test("A health file contains the health of a running service, and is ignored after it has stopped or died.", async () => {
  expect(readHealth(dataDir, at.ms)).toBeUndefined();
  file.start();
  await expect.poll(() => readHealth(dataDir, at.ms)).toEqual([circuit.health(at.ms)]);
  circuit.failed("a", new UpstreamError("timeout", "late"), at.ms, at.ms);
  await expect
    .poll(() => readHealth(dataDir, at.ms)?.[0]?.health.last_failure)
    .toEqual({ failure: "timeout", at: isoTime(at.ms) });
  expect(readHealth(dataDir, at.ms + 30_000)).toHaveLength(1);
  expect(readHealth(dataDir, at.ms + 30_001)).toBeUndefined();
  await file.stop();
  expect(readHealth(dataDir, at.ms)).toBeUndefined();
  expect(await readdir(dataDir)).toEqual([]);
});

test("A failure to write is logged once, and an invalid file is ignored.", async () => {
  await rm(dataDir, { recursive: true });
  file.start();
  await expect.poll(() => warnings).toHaveLength(1);
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(warnings).toHaveLength(1);
  await file.stop();
  const other = await mkdtemp(join(tmpdir(), "tollgate-test-"));
  await writeFile(join(other, "routes-a.json"), "{");
  expect(readHealth(other, at.ms)).toBeUndefined();
  await rm(other, { recursive: true });
});

test("The health files of all running services on a directory are combined.", async () => {
  const elsewhere = new Circuit({ providerId: "up", model: "m" }, true);
  const other = fileOf("b", elsewhere);
  circuit.answered("a", at.ms - 20, at.ms);
  for (let failures = 0; failures < 5; failures += 1) {
    elsewhere.failed("a", new UpstreamError("timeout", ""), at.ms, at.ms);
  }
  file.start();
  other.start();
  await expect
    .poll(() => readHealth(dataDir, at.ms))
    .toEqual([
      {
        provider: "up",
        route: "up/m",
        health: {
          ...circuit.health(at.ms).health,
          state: "open",
          failing_organizations: 1,
          next_probe_at: elsewhere.health(at.ms).health.next_probe_at,
          last_failure: { failure: "timeout", at: isoTime(at.ms) },
          recent: { successes: 1, failures: 5 },
        },
      },
    ]);
  await other.stop();
  expect(readHealth(dataDir, at.ms)).toEqual([circuit.health(at.ms)]);
});

test("A start removes the files of services that died, and no others.", async () => {
  const names = ["routes-0-1.json", "routes-0-2.json.new", "routes-0-3.json", "routes-of-mine.json"];
  for (const name of names) await writeFile(join(dataDir, name), "{");
  for (const name of names.slice(0, 2)) await utimes(join(dataDir, name), 0, 0);
  await utimes(join(dataDir, "routes-of-mine.json"), 0, 0);
  file.start();
  await expect.poll(() => readdir(dataDir)).not.toContain("routes-0-2.json.new");
  await file.stop();
  expect((await readdir(dataDir)).sort()).toEqual(["routes-0-3.json", "routes-of-mine.json"]);
});
