import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test, vi } from "vitest";
import { ROOT } from "../support/documents.ts";
import { nginxConfiguration, nginxSite } from "../support/nginx.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { PostgresProxy } from "../support/postgres-proxy.ts";
import {
  freePort,
  makeDirectory,
  makeOrganization,
  type Organization,
  type ServiceProcess,
  send,
  settledUsage,
  startProcess,
} from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const EXAMPLE = join(ROOT, "docs", "examples", "nginx-nodes.conf");
const ROUNDS = 12;
const messages = [{ role: "user", content: "go" }];

describe.skipIf(!inject("hasNginx") || !hasPostgres)("three nodes behind nginx, as the example sets them up", () => {
  let database: TestDatabase;
  let proxy: PostgresProxy;
  let upstream: Upstream;
  let nodes: ServiceProcess[] = [];
  let organization: Organization;
  let nginx: ChildProcess;
  let url: string;

  beforeAll(async () => {
    database = await createTestDatabase();
    proxy = await PostgresProxy.open(database.url);
    upstream = await startUpstream();
    const usage = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 };
    upstream.behave("fine", answering({ words: ["one ", "two"], usage }));
    upstream.behave("down", ({ response }) => sendJson(response, 503, { error: { message: "no" } }));
    const model = (id: string) => ({
      ...{ id, price: { input: 1_000, output: 1_000 } },
      routes: [{ provider: "up", model: id }],
    });
    const config = { providers: [upstream.provider], models: ["fine", "down"].map(model) };
    const first = await startProcess({ config, databaseUrl: database.url });
    // The second node reaches its database through a proxy that can be stopped.
    const others = [proxy.url, database.url].map((databaseUrl) => startProcess({ config, databaseUrl }));
    nodes = [first, ...(await Promise.all(others))];
    organization = await makeOrganization(first, "10000");
    const directory = await makeDirectory();
    const listens = `127.0.0.1:${await freePort()}`;
    const hosts = nodes.map((node) => new URL(node.url).host);
    writeFileSync(join(directory, "site.conf"), nginxSite(readFileSync(EXAMPLE, "utf8"), listens, hosts));
    writeFileSync(join(directory, "nginx.conf"), nginxConfiguration(directory));
    const words = ["-p", directory, "-c", join(directory, "nginx.conf"), "-e", join(directory, "error.log")];
    nginx = spawn("nginx", words, { stdio: "ignore" });
    url = `http://${listens}`;
    await vi.waitFor(() => statusOf("/v1/models"), { timeout: 60_000, interval: 50 });
  });
  afterAll(async () => {
    nginx?.kill("SIGTERM");
    if (nginx?.exitCode === null) await once(nginx, "exit");
    for (const node of nodes) await node.end();
    await upstream?.close();
    await proxy?.leave().catch(() => undefined);
    await database?.drop();
  });

  async function statusOf(path: string, body?: object): Promise<number> {
    const answer = await send({ url }, path, organization.token, body);
    await answer.text();
    return answer.status;
  }

  const refusedBy = (node: ServiceProcess | undefined) => node?.output().match(/"status":421/g)?.length ?? 0;

  test("a request that a node without its database refuses is answered by another node, and charged once", async () => {
    await proxy.leave();
    await expect.poll(() => statusAt(nodes[1], "/readyz")).toBe(503);
    const statuses = new Set<number>();
    for (let round = 0; round < ROUNDS; round += 1) {
      const unstreamed = statusOf("/v1/chat/completions", { model: "fine", messages });
      const streamed = statusOf("/v1/chat/completions", { model: "fine", messages, stream: true });
      const listed = statusOf("/v1/models");
      for (const status of await Promise.all([unstreamed, streamed, listed])) statuses.add(status);
    }
    expect([...statuses]).toEqual([200]);
    // It was asked, or the test would show nothing.
    await expect.poll(() => refusedBy(nodes[1])).toBeGreaterThan(0);
    expect(refusedBy(nodes[0]) + refusedBy(nodes[2])).toBe(0);
    expect(upstream.requests).toHaveLength(2 * ROUNDS);
    expect((await settledUsage({ url }, organization.token)).creditsUsed).toBeCloseTo(2 * ROUNDS * 0.02, 6);
  });

  test("a request that a provider has failed is sent to no other node", async () => {
    const before = upstream.requests.length;
    const answer = await send({ url }, "/v1/chat/completions", organization.token, { model: "down", messages });
    expect([answer.status, await answer.json()]).toMatchObject([503, { error: { code: "overloaded" } }]);
    expect(upstream.requests.slice(before)).toHaveLength(1);
  });
});

async function statusAt(node: ServiceProcess | undefined, path: string): Promise<number> {
  const answer = await fetch(`${node?.url}${path}`);
  await answer.text();
  return answer.status;
}
