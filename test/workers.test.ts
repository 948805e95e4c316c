import { existsSync, readFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, hasPostgres, type TestDatabase } from "./support/postgres.ts";
import { makeOrganization, type ServiceProcess, send, startProcess } from "./support/service.ts";

/** Holds live longer than any of these tests: on a slow machine an answer whose hold cannot be renewed would be aborted. */
const LEDGER = { renewSeconds: 0.3, sweepSeconds: 0.3 };
const echo = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }] };
const slow = {
  model: "sandbox/fault",
  messages: [{ role: "user", content: "silence after 5 tokens 2s" }],
  stream: true,
};

test("workers without PostgreSQL are refused with one line", async () => {
  await expect(startProcess({ workers: 2 })).rejects.toThrow(/--workers needs PostgreSQL, .*\n$/);
});

test("a number of workers that is not possible is refused", async () => {
  await expect(startProcess({ workers: 65 })).rejects.toThrow(
    '--workers is "65", but must be an integer from 1 to 64.',
  );
});

// Only Linux lists the children of a process.
describe.skipIf(!hasPostgres || process.platform !== "linux")("a service with two workers", () => {
  let database: TestDatabase;
  let service: ServiceProcess;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterEach(() => service.end("SIGKILL"));
  afterAll(() => database.drop());

  async function start(): Promise<string> {
    service = await startProcess({ databaseUrl: database.url, workers: 2, config: { ledger: LEDGER } });
    await expect.poll(startedWorkers).toBe(2);
    return (await makeOrganization(service, "100")).token;
  }

  function startedWorkers(): number {
    return service.output().match(/a worker accepts requests/g)?.length ?? 0;
  }

  /** Returns the ids of the running workers; none after the end of the supervisor. */
  function workers(): number[] {
    const { pid } = service.child;
    const list = `/proc/${pid}/task/${pid}/children`;
    return existsSync(list) ? readFileSync(list, "utf8").split(" ").filter(Boolean).map(Number) : [];
  }

  /** Begins a stream on a connection of its own: the workers get new connections in turns. */
  function openStream(token: string): Promise<IncomingMessage> {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    return new Promise((resolve, reject) => {
      const asked = request(`${service.url}/v1/chat/completions`, { method: "POST", agent: false, headers }, resolve);
      asked.on("error", reject).end(JSON.stringify(slow));
    });
  }

  test("replaces a worker that is killed, serves on both, and keeps the books balanced", async () => {
    const token = await start();
    const streams = await Promise.all([1, 2].map(() => openStream(token)));
    const [killed = 0] = workers();
    process.kill(killed, "SIGKILL");
    const ends = await Promise.allSettled(streams.map(text));
    expect(ends.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
    await expect.poll(startedWorkers).toBe(3);
    expect(workers()).toHaveLength(2);
    expect(workers()).not.toContain(killed);
    expect((await send(service, "/v1/chat/completions", token, echo)).status).toBe(200);
    const usage = async () => (await send(service, "/v1/usage", token)).json();
    await expect.poll(usage).toMatchObject({ creditsHeld: 0 });
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
    expect(service.output().match(/^curl /gm)).toHaveLength(1);
  });

  test("completes the answers of all workers when it is stopped", async () => {
    const token = await start();
    const streams = await Promise.all([1, 2, 3, 4].map(() => openStream(token)));
    const ended = service.end("SIGTERM");
    for (const stream of streams) expect(await text(stream)).toContain("data: [DONE]");
    expect(await ended).toBe(0);
  });

  test("reloads the configuration of all workers at SIGHUP", async () => {
    await start();
    service.child.kill("SIGHUP");
    const reloads = () => service.output().match(/"cause":"signal".*"the configuration was reloaded/g)?.length ?? 0;
    await expect.poll(reloads).toBe(2);
    expect(workers()).toHaveLength(2);
  });

  test("stops with exit code 1 when five workers in a row end soon after their starts", async () => {
    await start();
    const killed = new Set<number>();
    while (service.child.exitCode === null && service.child.signalCode === null) {
      for (const worker of workers().filter((pid) => !killed.has(pid))) {
        killed.add(worker);
        process.kill(worker, "SIGKILL");
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(await service.end()).toBe(1);
    // The first worker may have lived longer on a busy machine.
    const restarts = service.output().match(/a worker has ended: another one is started/g)?.length ?? 0;
    expect(restarts).toBeGreaterThanOrEqual(4);
    expect(service.output()).toContain("workers end soon after their starts: the service stops");
  });

  test("completes running answers when its supervisor is killed", async () => {
    const token = await start();
    const streams = await Promise.all([1, 2].map(() => openStream(token)));
    service.child.kill("SIGKILL");
    for (const stream of streams) expect(await text(stream)).toContain("data: [DONE]");
  });
});
