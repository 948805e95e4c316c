import { existsSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AdminClient, firstAdminToken, operator, signIn } from "../support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

const IN_FORCE_MS = 5_000;

describe.skipIf(!hasPostgres)("two nodes on one PostgreSQL", () => {
  let database: TestDatabase;
  let first: RunningService;
  let second: RunningService;
  beforeAll(async () => {
    database = await createTestDatabase();
    // A fast machine asks more often than the default allows while it waits for a change.
    const config = { limits: { requestsPerMinute: 1_000_000 } };
    first = await startService({ databaseUrl: database.url, config });
    second = await startService({ databaseUrl: database.url, config });
  });
  afterAll(async () => {
    await Promise.all([first?.end(), second?.end()]);
    await database?.drop();
  });

  test("the first node alone creates the admin token, which is valid on both", async () => {
    expect(existsSync(join(second.dataDir, "admin-token"))).toBe(false);
    const { headers } = operator(first);
    expect((await new AdminClient(second, headers).call("GET", "/organizations")).status).toBe(200);
  });

  test("a session is valid on both nodes until it ends on one of them", async () => {
    const here = await signIn(first, firstAdminToken(first));
    const there = new AdminClient(second, here.headers);
    expect((await there.call("GET", "/session")).body.role).toBe("operator");
    expect((await there.call("DELETE", "/session")).status).toBe(204);
    expect((await here.call("GET", "/session")).body.role).toBeNull();
  });

  test("storage that is disabled on one node is disabled on the other at once", async () => {
    const [one, other] = [await makeOrganization(first, "5"), await makeOrganization(first, "5")];
    const ask = async ({ token }: Organization) => {
      const body = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }] };
      const answer = await send(second, "/v1/chat/completions", token, body);
      const path = `/requests?request_id=${answer.headers.get("x-request-id")}`;
      const { body: found } = await operator(first).call<{ data: { id: string }[] }>("GET", path);
      return found.data[0]?.id ?? "none";
    };
    const isKept = async (id: string) => (await operator(first).call("GET", `/requests/${id}`)).body.has_conversation;
    const turn = ({ id }: Organization, keeps_conversations: boolean) =>
      operator(first).call("PATCH", `/organizations/${id}`, { keeps_conversations });
    await Promise.all([turn(one, true), turn(other, true)]);
    const kept = await ask(one);
    await expect.poll(() => isKept(kept)).toBe(true);
    await turn(one, false);
    const [late, later] = [await ask(one), await ask(other)];
    // The queue keeps its order: a later record is written later.
    await expect.poll(() => isKept(later)).toBe(true);
    expect(await isKept(late)).toBe(false);
  });

  test("a revocation or a sign-out takes effect within 1 s on its node, and within 5 s on the other", async () => {
    const organization = await makeOrganization(first, "5", { scopes: MEMBER_SCOPES });
    const session = await signIn(first, organization.token);
    const { body } = await session.call("POST", "/playground/token", {});
    const ask = (service: RunningService, token: string) => send(service, "/v1/models", token);
    const refusedWithin = async (service: RunningService, token: string, beganAtMs: number, withinMs: number) => {
      let [status, askedAtMs] = [200, beganAtMs];
      while (status === 200 && askedAtMs - beganAtMs < withinMs) {
        askedAtMs = performance.now();
        status = (await ask(service, token)).status;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return status === 401;
    };
    const endings: [string, () => Promise<unknown>][] = [
      [String(body.token), () => session.call("DELETE", "/session")],
      [organization.token, () => operator(first).call("POST", `/tokens/${organization.tokenId}/revoke`)],
    ];
    for (const [token, end] of endings) {
      for (const service of [first, second]) expect((await ask(service, token)).status).toBe(200);
      await end();
      const endedAtMs = performance.now();
      expect(await refusedWithin(first, token, endedAtMs, 1_000)).toBe(true);
      expect(await refusedWithin(second, token, endedAtMs, IN_FORCE_MS)).toBe(true);
    }
  });

  test("the limits of a budget that is made on one node apply on the other within 5 s", async () => {
    const { id, token } = await makeOrganization(first, "5");
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }] };
    const ask = async () => (await send(second, "/v1/chat/completions", token, body)).status;
    expect(await ask()).toBe(200);
    const draft = { name: "Few", limits: { tokens_per_minute: 1 } };
    const made = await operator(first).call("POST", `/organizations/${id}/budgets`, draft);
    expect(await statusWithin(ask, IN_FORCE_MS)).toBe(429);
    const path = `/organizations/${id}/budgets/${made.body.id}`;
    await operator(first).call("PATCH", path, { limits: { tokens_per_minute: 100_000 } });
    expect(await statusWithin(ask, IN_FORCE_MS, 429)).toBe(200);
    await operator(first).call("PATCH", path, { amount: 0.000001, limits: { tokens_per_minute: 1 } });
    expect(await statusWithin(ask, IN_FORCE_MS, 402)).toBe(429);
    await operator(first).call("DELETE", path);
    expect(await statusWithin(ask, IN_FORCE_MS, 429)).toBe(200);
  });

  test("a change on one node takes effect on the other within 5 s, and is visible there", async () => {
    const organization = await makeOrganization(first, "5");
    const ask = (service: RunningService) =>
      send(service, "/v1/chat/completions", organization.token, {
        model: "sandbox/echo",
        messages: [{ role: "user", content: "hello" }],
      });
    expect((await ask(second)).status).toBe(200);
    const { headers } = operator(first);
    await operator(first).call("PATCH", `/organizations/${organization.id}`, { status: "paused" });
    expect(await statusWithin(async () => (await ask(second)).status, IN_FORCE_MS)).toBe(403);
    const there = new AdminClient(second, headers);
    const paths = [
      `/overview?organization_id=${organization.id}`,
      "/overview",
      `/requests?organization_id=${organization.id}`,
      "/requests?status=complete",
      `/organizations?search=test`,
      `/organizations/${organization.id}/statement`,
      `/organizations/${organization.id}/grants`,
      `/tokens?organization_id=${organization.id}&status=active&search=unnamed`,
      `/audit?organization_id=${organization.id}`,
    ];
    for (const path of paths) {
      const { status, body } = await there.call("GET", path);
      expect([path, status]).toEqual([path, 200]);
      expect(JSON.stringify(body)).toContain(path.endsWith("/statement") ? organization.tokenId : organization.id);
    }
    const { body } = await there.call("POST", "/playground/token", { organization_id: organization.id });
    expect((await send(first, "/v1/models", String(body.token))).status).toBe(403);
  });
});

/** Asks until the status is another one than `before`, and no longer after a time: a request that starts later has the new one. */
async function statusWithin(ask: () => Promise<number>, ms: number, before = 200): Promise<number> {
  const changedAtMs = performance.now();
  let [status, askedAtMs] = [before, changedAtMs];
  while (status === before && askedAtMs - changedAtMs < ms) {
    askedAtMs = performance.now();
    status = await ask();
  }
  return status;
}
