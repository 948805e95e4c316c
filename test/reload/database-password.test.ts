import { randomBytes } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { expect, test } from "vitest";
import { firstToken } from "../support/admin.ts";
import { createTestDatabase, hasPostgres } from "../support/postgres.ts";
import { makeDirectory, send, startProcess } from "../support/service.ts";

test.skipIf(!hasPostgres)("the password of the database is rotated while the service runs", async () => {
  const directory = await makeDirectory();
  const database = await createTestDatabase();
  const administrator = new pg.Client({ connectionString: database.url });
  await administrator.connect();
  const role = `rotated_${randomBytes(8).toString("hex")}`;
  const write = (password: string) => {
    const url = new URL(database.url);
    url.username = role;
    url.password = encodeURIComponent(password);
    writeFileSync(join(directory, "database-url"), `${url.href}\n`);
  };
  await administrator.query(`CREATE ROLE ${role} LOGIN PASSWORD 'canary one/%'`);
  await administrator.query(`GRANT ALL ON SCHEMA public TO ${role}`);
  write("canary one/%");
  const environment = { DATABASE_URL_FILE: join(directory, "database-url") };
  const service = await startProcess({ environment, dataDir: directory });
  try {
    const token = firstToken(service);
    const ask = async () => {
      const body = { model: "sandbox/echo", messages: [{ role: "user", content: "Hello" }] };
      const answer = await send(service, "/v1/chat/completions", token, body);
      await answer.text();
      return answer.status;
    };
    expect(await ask()).toBe(200);
    await administrator.query(`ALTER ROLE ${role} PASSWORD 'canary two'`);
    write("canary two");
    await expect.poll(service.output, { timeout: 60_000 }).toContain('"changes":{"database":"changed"}');
    const { rowCount } = await administrator.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1",
      [role],
    );
    expect(rowCount).toBeGreaterThan(0);
    await expect.poll(ask, { timeout: 60_000 }).toBe(200);
    expect(service.output()).not.toContain("canary");
  } finally {
    await service.end("SIGKILL");
    await administrator.end();
    await database.drop();
    rmSync(directory, { recursive: true });
  }
});
