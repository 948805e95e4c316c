import { spawnSync } from "node:child_process";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { PostgresProxy } from "../support/postgres-proxy.ts";
import {
  eventsOf,
  makeDirectory,
  makeOrganization,
  type Organization,
  type ServiceProcess,
  send,
  startProcess,
  usageOf,
} from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

/** Each answer costs 5 tokens of 1 credit; the prompt is free. */
const COST = 5;
const usage = { prompt_tokens: 3, completion_tokens: COST, total_tokens: 3 + COST };

let upstream: Upstream;
let database: TestDatabase;
let proxy: PostgresProxy;
/** Ends the answers that wait for it. */
let finish: () => void;
let finished: Promise<void>;

beforeAll(async () => {
  if (!hasPostgres) return;
  upstream = await startUpstream();
  upstream.behave("gated", async ({ body, response }) => {
    const gate = finished;
    if (body.input !== undefined) {
      await gate;
      return sendJson(response, 200, { data: [{ index: 0, embedding: [1] }], usage: { prompt_tokens: COST } });
    }
    if (body.stream !== true) {
      await gate;
      const choices = [{ index: 0, message: { role: "assistant", content: "word" }, finish_reason: "stop" }];
      return sendJson(response, 200, { choices, usage });
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (fields: object) => response.write(`data: ${JSON.stringify(fields)}\n\n`);
    event({ choices: [{ index: 0, delta: { content: "word" } }] });
    await gate;
    event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
    event({ choices: [], usage });
    response.end("data: [DONE]\n\n");
  });
  upstream.behave("endless", answering({ words: Array.from({ length: 100_000 }, () => " word"), pauseMs: 20 }));
  database = await createTestDatabase();
  proxy = await PostgresProxy.open(database.url);
});
afterAll(async () => {
  await proxy?.close();
  await database?.drop();
  await upstream?.close();
});

/** Limits the size of files that a process writes: any further write of its spool fails. */
function limitFiles(pid: number | undefined, bytes: number | "unlimited"): number | null {
  return spawnSync("prlimit", ["--pid", String(pid), `--fsize=${bytes}:unlimited`]).status;
}
function canLimitFiles(): boolean {
  const isSo = limitFiles(process.pid, "unlimited") === 0;
  if (!isSo) process.stderr.write("No test of a spool that cannot be written: this machine has no prlimit.\n");
  return isSo;
}

/** Configures a service whose holds live longer than any test by default. */
const configOf = (holdSeconds = 600, models: object[] = []) => ({
  ledger: { holdSeconds, renewSeconds: 0.3, sweepSeconds: 0.3 },
  providers: [upstream.provider],
  models: ["gated", "endless"]
    .map((id): object => {
      return { id, price: { input: 0, output: 1_000_000 }, routes: [{ provider: "up", model: id }] };
    })
    .concat(models),
});

interface Charge {
  kind: string;
  requestId: string;
  amount: number;
}
interface Ready {
  status: string;
  spool: { entries: number };
  dead_letters: { entries: number };
}
async function readyz({ url }: ServiceProcess): Promise<Ready & { code: number }> {
  const answer = await fetch(`${url}/readyz`);
  return { code: answer.status, ...((await answer.json()) as Ready) };
}

function ask(service: ServiceProcess, { token }: Organization, stream: boolean): Promise<Response> {
  const messages = [{ role: "user", content: "go" }];
  return send(service, "/v1/chat/completions", token, { model: "gated", messages, max_tokens: 20, stream });
}

/** Starts ten streams and ten unstreamed completions, and waits until every hold is in the store. */
async function run(service: ServiceProcess, organization: Organization) {
  const gate = Promise.withResolvers<void>();
  finish = gate.resolve;
  finished = gate.promise;
  const before = upstream.requests.length;
  const streams = await Promise.all(Array.from({ length: 10 }, () => ask(service, organization, true)));
  const others = Array.from({ length: 10 }, () => ask(service, organization, false));
  while (upstream.requests.length < before + 20) await new Promise((resolve) => setTimeout(resolve, 10));
  return { streams, others };
}

async function expectWhole({ streams, others }: Awaited<ReturnType<typeof run>>): Promise<void> {
  for (const stream of streams) expect(eventsOf(await stream.text()).at(-1)).toBe("[DONE]");
  for (const other of await Promise.all(others)) {
    expect([other.status, other.headers.get("x-credits-charged")]).toEqual([200, String(COST)]);
    // The header reports the balance at admission: only the store knows more.
    expect(Number(other.headers.get("x-credits-available"))).toBeLessThan(1_000);
    expect(await other.json()).toMatchObject({ usage: { cost: COST } });
  }
}

async function expectBooked(service: ServiceProcess, { id, token }: Organization): Promise<void> {
  const booked = { creditsUsed: 20 * COST, creditsHeld: 0, creditsAvailable: 1_000 - 20 * COST };
  await expect.poll(() => usageOf(service, token)).toMatchObject(booked);
  await expect.poll(() => readyz(service)).toMatchObject({ code: 200, spool: { entries: 0 } });
  // One that another process expired meanwhile has a second line, with the difference.
  const { entries } = await service.tollgate<{ entries: Charge[] }>("credits", "statement", "--org", id);
  const charges = Map.groupBy(
    entries.filter(({ kind }) => kind === "charge"),
    ({ requestId }) => requestId,
  );
  const sums = [...charges.values()].map((lines) => lines.reduce((sum, { amount }) => sum - amount, 0));
  expect(sums).toEqual(Array(20).fill(COST));
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
}

describe.skipIf(!hasPostgres)("PostgreSQL goes away under running completions", () => {
  test("Running answers complete, new requests are refused, and each is charged once afterwards.", async () => {
    const service = await startProcess({ config: configOf(), databaseUrl: proxy.url });
    try {
      const organization = await makeOrganization(service, "1000");
      const running = await run(service, organization);
      await proxy.leave();
      finish();
      await expectWhole(running);
      expect(await readyz(service)).toEqual({
        code: 503,
        status: "store_unavailable",
        spool: { entries: 20 },
        dead_letters: { entries: 0 },
      });
      const refused = await ask(service, organization, false);
      const { error } = (await refused.json()) as { error: { code: string } };
      expect([refused.status, error.code]).toEqual([503, "store_unavailable"]);
      await proxy.comeBack();
      await expectBooked(service, organization);
      // The log lines arrive a moment later.
      const countOf = (text: string) => service.output().split(text).length - 1;
      await expect.poll(() => countOf("the spool is empty")).toBe(1);
      expect(countOf("settlements go to the spool")).toBe(1);
    } finally {
      await proxy.comeBack().catch(() => {});
      await service.end();
    }
  });

  test("Embeddings of an outage are answered, and charged once afterwards.", async () => {
    const routes = [{ provider: "up", model: "gated" }];
    const embedder = { id: "embedder", category: "embedding", price: { input: 1_000_000, output: 0 }, routes };
    const service = await startProcess({ config: configOf(600, [embedder]), databaseUrl: proxy.url });
    try {
      const { token } = await makeOrganization(service, "1000");
      const gate = Promise.withResolvers<void>();
      finished = gate.promise;
      const before = upstream.requests.length;
      const running = send(service, "/v1/embeddings", token, { model: "embedder", input: "some words" });
      while (upstream.requests.length === before) await new Promise((resolve) => setTimeout(resolve, 10));
      await proxy.leave();
      gate.resolve();
      const answer = await running;
      expect([answer.status, answer.headers.get("x-credits-charged")]).toEqual([200, String(COST)]);
      expect(await readyz(service)).toMatchObject({ code: 503, spool: { entries: 1 } });
      await proxy.comeBack();
      await expect
        .poll(() => usageOf(service, token))
        .toMatchObject({ creditsUsed: COST, creditsHeld: 0, creditsAvailable: 1_000 - COST });
      await expect.poll(() => readyz(service)).toMatchObject({ code: 200, spool: { entries: 0 } });
      expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
    } finally {
      await proxy.comeBack().catch(() => {});
      await service.end();
    }
  });

  test("An outage longer than the life of holds ends answers before their holds, which are charged as far as they were sent.", async () => {
    const service = await startProcess({ config: configOf(3), databaseUrl: proxy.url });
    try {
      const { token } = await makeOrganization(service, "100000");
      const body = { model: "endless", messages: [{ role: "user", content: "go" }], max_tokens: 4_000 };
      const before = upstream.requests.length;
      const stream = await send(service, "/v1/chat/completions", token, { ...body, stream: true });
      const whole = send(service, "/v1/chat/completions", token, { ...body, model: "gated" });
      const gate = Promise.withResolvers<void>();
      finished = gate.promise;
      while (upstream.requests.length < before + 2) await new Promise((resolve) => setTimeout(resolve, 10));
      await proxy.leave();
      const events = eventsOf(await stream.text());
      expect(JSON.parse(events.at(-1) ?? "")).toMatchObject({ error: { code: "store_unavailable" } });
      const answer = await whole;
      expect([answer.status, await answer.json()]).toMatchObject([503, { error: { code: "store_unavailable" } }]);
      for (const { closed } of upstream.requests.slice(before)) await closed;
      const sent = events.filter((event) => event.includes('" word"')).length;
      expect(sent).toBeGreaterThan(0);
      gate.resolve();
      await proxy.comeBack();
      await expect.poll(() => usageOf(service, token)).toMatchObject({ creditsHeld: 0, creditsUsed: sent });
      expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
    } finally {
      await proxy.comeBack().catch(() => {});
      await service.end();
    }
  });

  test.skipIf(!canLimitFiles())(
    "where the spool cannot be written either, answers end in an error, and nothing stays held",
    async () => {
      const service = await startProcess({ config: configOf(3), databaseUrl: proxy.url });
      try {
        const { token, ...organization } = await makeOrganization(service, "1000");
        const running = await run(service, { token, ...organization });
        await proxy.leave();
        limitFiles(service.child.pid, 0);
        finish();
        for (const stream of running.streams) {
          expect(JSON.parse(eventsOf(await stream.text()).at(-1) ?? "")).toMatchObject({
            error: { code: "store_unavailable" },
          });
        }
        for (const other of await Promise.all(running.others)) expect(other.status).toBe(503);
        limitFiles(service.child.pid, "unlimited");
        await proxy.comeBack();
        // Streams are charged as far as their last renewal knew them; what got an error status is not charged.
        await expect.poll(() => usageOf(service, token)).toMatchObject({ creditsHeld: 0 });
        const { creditsUsed } = await usageOf(service, token);
        expect(creditsUsed).toBeLessThanOrEqual(running.streams.length * COST);
        const ready = { code: 200, spool: { entries: 0 }, dead_letters: { entries: 0 } };
        await expect.poll(() => readyz(service)).toMatchObject(ready);
        expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
      } finally {
        limitFiles(service.child.pid, "unlimited");
        await proxy.comeBack().catch(() => {});
        await service.end();
      }
    },
  );

  test.each(["SIGTERM", "SIGKILL"] as const)("The next start books the spool that a %s has left.", async (signal) => {
    const dataDir = await makeDirectory();
    const first = await startProcess({ config: configOf(), databaseUrl: proxy.url, dataDir });
    const organization = await makeOrganization(first, "1000");
    const running = await run(first, organization);
    await proxy.leave();
    finish();
    await expectWhole(running);
    const code = await first.end(signal);
    await proxy.comeBack();
    if (signal === "SIGTERM") {
      expect(code).toBe(0);
      expect(first.output()).toContain("settlements stay in the spool");
    }
    expect((await readdir(join(dataDir, "spool"))).filter((name) => name.endsWith(".jsonl"))).toHaveLength(1);
    const second = await startProcess({ config: configOf(), databaseUrl: proxy.url, dataDir });
    try {
      await expectBooked(second, organization);
    } finally {
      await second.end();
    }
    expect(await readdir(join(dataDir, "spool"))).toEqual([]);
  });

  test("A running process books the settlements that a killed process left behind.", async () => {
    const dataDir = await makeDirectory();
    const options = { config: configOf(), dataDir };
    const first = await startProcess({ ...options, databaseUrl: proxy.url });
    const organization = await makeOrganization(first, "1000");
    const running = await run(first, organization);
    await proxy.leave();
    finish();
    await expectWhole(running);
    // It reaches the store by another way, and may not touch a spool whose process lives.
    const second = await startProcess({ ...options, databaseUrl: database.url });
    try {
      expect((await readyz(second)).spool).toEqual({ entries: 0 });
      await first.end("SIGKILL");
      await expectBooked(second, organization);
    } finally {
      await second.end();
      await proxy.comeBack();
    }
  });
});
