import { readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { afterAll, beforeAll, describe, type ExpectStatic, test } from "vitest";
import { createTestDatabase, hasPostgres, type TestDatabase } from "./support/postgres.ts";
import { makeDirectory, type RunningService, startService } from "./support/service.ts";

/** Memory that the process keeps resident, in MiB; only Linux tells it. */
function residentMebibytes({ child }: RunningService): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  const line = status.split("\n").find((one) => one.startsWith("VmRSS")) ?? "";
  return Number(/[0-9]+/.exec(line)?.[0]) / 1024;
}

/**
 * Run from source, whose types are stripped by a part of Node that takes some 15 MiB more than the compiled package does:
 * docs/performance.md has the figures of both.
 */
const RESIDENT_MEBIBYTES_MAX = 170;
/** Memory is given back when no request has come for a minute; on a busy machine the collection itself takes longer. */
const RELEASED_WITHIN_MS = 180_000;

describe.skipIf(process.platform !== "linux")("an idle service gives its memory back", { concurrent: true }, () => {
  let database: TestDatabase | undefined;
  beforeAll(async () => {
    if (hasPostgres) database = await createTestDatabase();
  });
  afterAll(() => database?.drop());

  /** `expect` is that of the test: tests that run at once share no other. */
  async function settlesAt(expect: ExpectStatic, databaseUrl?: string): Promise<void> {
    const dataDir = await makeDirectory();
    const options = { dataDir, ...(databaseUrl !== undefined && { databaseUrl }) };
    // The first start fills the compile cache.
    await (await startService(options)).end();
    const service = await startService(options);
    try {
      await expect
        .poll(() => residentMebibytes(service), { interval: 1_000, timeout: RELEASED_WITHIN_MS })
        .toBeLessThan(RESIDENT_MEBIBYTES_MAX);
    } finally {
      await service.end();
      await rm(dataDir, { recursive: true, force: true });
    }
  }

  test("on SQLite", ({ expect }) => settlesAt(expect));
  test.skipIf(!hasPostgres)("on PostgreSQL", ({ expect }) => settlesAt(expect, database?.url));
});
