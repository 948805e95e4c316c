import { readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { afterAll, beforeAll, describe, type ExpectStatic, test } from "vitest";
import { createTestDatabase, hasPostgres, type TestDatabase } from "./support/postgres.ts";
import { makeDirectory, type ServiceProcess, startProcess } from "./support/service.ts";

/** Returns the resident memory of the process in MiB; only Linux reports it. */
function residentMebibytes({ child }: ServiceProcess): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  const line = status.split("\n").find((one) => one.startsWith("VmRSS")) ?? "";
  return Number(/[0-9]+/.exec(line)?.[0]) / 1024;
}

/** Limit for a service run from source, which needs about 30 MiB more than the compiled package: bench/README.md. */
const RESIDENT_MEBIBYTES_MAX = 220;

describe.skipIf(process.platform !== "linux")("an idle service takes little memory", { concurrent: true }, () => {
  let database: TestDatabase | undefined;
  beforeAll(async () => {
    if (hasPostgres) database = await createTestDatabase();
  });
  afterAll(() => database?.drop());

  /** Takes the test's own `expect`, because the tests run concurrently. */
  async function settlesAt(expect: ExpectStatic, databaseUrl?: string): Promise<void> {
    const dataDir = await makeDirectory();
    const options = { dataDir, ...(databaseUrl !== undefined && { databaseUrl }) };
    // The first start fills the compile cache.
    await (await startProcess(options)).end();
    const service = await startProcess(options);
    try {
      expect(residentMebibytes(service)).toBeLessThan(RESIDENT_MEBIBYTES_MAX);
    } finally {
      await service.end();
      await rm(dataDir, { recursive: true, force: true });
    }
  }

  test("on SQLite", ({ expect }) => settlesAt(expect));
  test.skipIf(!hasPostgres)("on PostgreSQL", ({ expect }) => settlesAt(expect, database?.url));
});
