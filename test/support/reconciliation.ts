import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterAll, beforeAll, expect } from "vitest";
import { DAY_MS } from "../../src/api/time.ts";
import { bulkStatements, pastPartitions } from "./bulk.ts";
import { runCommand } from "./command-line.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "./postgres.ts";
import { BOOKED_COLUMNS } from "./provider-books.ts";

export const LONG = 600_000;
export const STORES = hasPostgres ? (["sqlite", "postgres"] as const) : (["sqlite"] as const);
/** The begin of a day: `shop` has requests from then on, and `openai` from a day later on. */
export const FROM_MS = Math.floor(Date.now() / DAY_MS - 2) * DAY_MS;
export const [STEP_MS, COUNT] = [1_800, 4_000];

/** Fills the books of a store for the tests of a file, and returns what they need. */
export function reconciliation(kind: (typeof STORES)[number]) {
  /** Variables of the commands, which a test changes. */
  const environment: Record<string, string> = {};
  let directory: string;
  let database: TestDatabase | undefined;
  let place: string[];

  const write = (name: string, content: string | Buffer) => {
    writeFileSync(join(directory, name), content);
    return join(directory, name);
  };
  const fill = async (statements: string[]) => {
    if (database === undefined) {
      const books = new DatabaseSync(join(directory, "data", "tollgate.db"));
      for (const statement of statements) books.exec(statement);
      return books.close();
    }
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    for (const statement of statements) await client.query(statement);
    await client.end();
  };
  /** Runs a command on this store. */
  const command = (...words: string[]) => runCommand([...words, ...place], directory, environment);
  /** Runs the command; gives its exit code and its document. */
  const reconcile = async (...words: string[]) => {
    const { code, stdout, stderr } = await command("reconcile", ...words, "--json");
    expect(stderr).toBe("");
    return { code, ...JSON.parse(stdout) };
  };

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), "tollgate-reconcile-"));
    database = kind === "postgres" ? await createTestDatabase() : undefined;
    const address = database === undefined ? "" : `database: ${JSON.stringify(database.url)}\n`;
    const config = write("tollgate.yaml", `credits: { perDollar: 100 }\n${address}`);
    place = ["--config", config, "--data-dir", join(directory, "data")];
    const made = await command("org", "create", "Shop", "--credits", "1000", "--json");
    expect(made.code).toBe(0);
    const { id } = JSON.parse(made.stdout);
    const grants = await command("org", "create", "Other", "--credits", "1000", "--json");
    const bulk = { organizationId: id, grantId: "grant", count: COUNT, fromMs: FROM_MS, stepMs: STEP_MS };
    const other = { ...bulk, organizationId: JSON.parse(grants.stdout).id, count: 300 };
    const partitions = kind === "postgres" ? pastPartitions(FROM_MS) : [];
    await fill([
      ...partitions,
      ...bulkStatements(kind, { ...bulk, columns: BOOKED_COLUMNS }),
      // One a minute, on OpenAI: in five hours of the next day.
      ...bulkStatements(kind, {
        ...other,
        ...{ fromMs: FROM_MS + DAY_MS, stepMs: 60_000 },
        columns: {
          ...{
            request_id: "'req_o' || n",
            upstream: "'openai/gpt-5-mini'",
            charge: "'i100@1000000 c40@1000000 w5@1000000 o7@1000000 r3@1000000'",
          },
          cost: "2000000",
          // The last of an hour ends in the next one.
          ended_at: `${FROM_MS + DAY_MS} + 60000 * n + CASE n % 60 WHEN 59 THEN 90000 ELSE 500 END`,
        },
      }),
    ]);
  }, LONG);
  afterAll(async () => {
    rmSync(directory, { recursive: true });
    await database?.drop();
  });
  return { write, reconcile, command, environment };
}
