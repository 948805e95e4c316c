import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { runTollgate, startTollgate } from "./support/command-line.ts";
import { createTestDatabase, hasPostgres } from "./support/postgres.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "tollgate-store-kind-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

describe.runIf(hasPostgres)("a data directory remembers the kind of its store", () => {
  const kindOf = (words: string[], environment: Record<string, string>) => runTollgate(words, directory, environment);
  const commands = [
    "serve --port 0",
    "org create Twice",
    "org list",
    "ledger verify --json",
    "store migrate",
    "store backup x",
  ];

  test("without DATABASE_URL on the directory of a PostgreSQL node, nothing creates or opens a SQLite store", async () => {
    const database = await createTestDatabase();
    const { url } = database;
    const { password } = new URL(url);
    expect(password.length).toBeGreaterThan(5);
    try {
      const service = startTollgate(["serve", "--port", "0"], directory, { DATABASE_URL: url });
      await service.prints(/^curl /m);
      service.child.kill("SIGTERM");
      await service.ended;
      expect(readFileSync(join(directory, ".tollgate", "store"), "utf8")).toMatch(
        /^PostgreSQL at 127\.0\.0\.1:\d+\/\w+\n$/,
      );
      for (const command of commands) {
        const { code, stdout, stderr, store } = await kindOf(command.split(" "), {});
        expect({ command, code, stdout, store }).toEqual({ command, code: 1, stdout: "", store: null });
        expect(stderr).toMatch(
          /^tollgate: The data directory \S+ belongs to services on PostgreSQL at 127\.0\.0\.1:\d+\/\w+, but no database is configured\. Set DATABASE_URL, or name another directory with --data-dir or --config\. To use SQLite there instead, delete the file \S+\.tollgate\/store\.\n$/,
        );
        expect(stderr).not.toContain(password);
      }
      expect(readdirSync(join(directory, ".tollgate"))).not.toContain("tollgate.db");
      const listed = await kindOf(["org", "list", "--json"], { DATABASE_URL: url });
      expect([listed.code, listed.store]).toEqual([0, expect.stringMatching(/^PostgreSQL at 127\.0\.0\.1:\d+\/\w+$/)]);
    } finally {
      await database.drop();
    }
  });

  test("with DATABASE_URL on the directory of a SQLite store, nothing writes to the database", async () => {
    const database = await createTestDatabase();
    const environment = { DATABASE_URL: database.url };
    try {
      expect((await kindOf(["org", "create", "Once"], {})).store).toMatch(/^SQLite in \S+, created by this command$/);
      for (const command of commands) {
        const { code, stdout, stderr } = await kindOf(command.split(" "), environment);
        expect({ command, code, stdout }).toEqual({ command, code: 1, stdout: "" });
        expect(stderr).toMatch(
          /^tollgate: The data directory \S+ contains a SQLite store, but PostgreSQL at 127\.0\.0\.1:\d+\/\w+ is configured\. Unset DATABASE_URL, or name another directory with --data-dir or --config\. To move the store to PostgreSQL, run tollgate store copy\.\n$/,
        );
      }
      expect((await kindOf(["org", "list", "--data-dir", "other"], environment)).stderr).toMatch(
        /There is no store in/,
      );
    } finally {
      await database.drop();
    }
  });
});
