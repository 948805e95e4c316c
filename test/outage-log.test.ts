import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { firstToken } from "./support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "./support/postgres.ts";
import { PostgresProxy } from "./support/postgres-proxy.ts";
import { type ServiceProcess, send, startProcess } from "./support/service.ts";

const CLIENTS = 50;
const REQUESTS_OF_EACH = 20;
const CHARACTERS_MAX = 64 * 1024;

describe.skipIf(!hasPostgres)("an unavailable PostgreSQL", () => {
  let database: TestDatabase;
  let proxy: PostgresProxy;
  let service: ServiceProcess;

  beforeAll(async () => {
    database = await createTestDatabase();
    proxy = await PostgresProxy.open(database.url);
    service = await startProcess({ databaseUrl: proxy.url });
  });
  afterAll(async () => {
    await service?.end("SIGKILL");
    await proxy?.close();
    await database?.drop();
  });

  function logLines(): Record<string, unknown>[] {
    const lines = service
      .output()
      .split("\n")
      .filter((line) => line.startsWith("{") && line.endsWith("}"));
    return lines.map((line) => JSON.parse(line));
  }
  const withMessage = (message: string) => logLines().filter(({ msg }) => msg === message);

  test("is logged once when it begins and once when it is over, for any number of requests, without a stack", async () => {
    const token = firstToken(service);
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }] };
    const complete = async () => {
      const answer = await send(service, "/v1/chat/completions", token, body);
      await answer.arrayBuffer();
      return answer.status;
    };
    expect(await complete()).toBe(200);
    await proxy.leave();
    const before = service.output().length;
    const client = async () => {
      for (let sent = 0; sent < REQUESTS_OF_EACH; sent += 1) expect(await complete()).toBe(503);
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    await expect.poll(() => withMessage("the store is unavailable").length).toBe(1);
    const [line] = withMessage("the store is unavailable");
    expect(line).toMatchObject({ level: "error", err: { name: "StoreUnavailableError" } });
    await proxy.comeBack();
    await expect
      .poll(() => withMessage("the store is available again"))
      .toMatchObject([{ level: "info", failures: expect.any(Number), durationMs: expect.any(Number) }]);
    expect(withMessage("the store is unavailable")).toHaveLength(1);
    const text = service.output().slice(before);
    expect(text.length).toBeLessThan(CHARACTERS_MAX);
    expect(text).not.toContain('"stack"');
    expect(text).not.toMatch(/\n\s+at |\.ts:\d+:\d+/);
    expect(await complete()).toBe(200);
  });
});
