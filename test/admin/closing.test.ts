import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AdminClient, operator } from "../support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { makeOrganization, type RunningService, send, settledUsage, startService } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

interface Entry {
  type: string;
  amount: number;
  note: string | null;
}

describe.each(hasPostgres ? (["SQLite", "PostgreSQL"] as const) : (["SQLite"] as const))("%s", (store) => {
  let database: TestDatabase | undefined;
  let upstream: Upstream;
  let service: RunningService;
  let admin: AdminClient;
  /** Ends the answers of the model `slow`. */
  let release: () => void;

  beforeAll(async () => {
    upstream = await startUpstream();
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    upstream.behave("slow", async (request) => {
      await released;
      await answering({ words: ["one"] })(request);
    });
    if (store === "PostgreSQL") database = await createTestDatabase();
    const models = [{ id: "slow", price: { input: 1, output: 1 }, routes: [{ provider: "up", model: "slow" }] }];
    service = await startService({ databaseUrl: database?.url, config: { providers: [upstream.provider], models } });
    admin = operator(service);
  });
  afterAll(async () => {
    await service?.end();
    await upstream?.close();
    await database?.drop();
  });

  const close = (id: string, rest = "lapsed") => admin.call("POST", `/organizations/${id}/close`, { rest });
  const ask = (token: string, model = "sandbox/echo") =>
    send(service, "/v1/chat/completions", token, { model, messages: [{ role: "user", content: "hello" }] });
  const entriesOf = async (id: string) =>
    (await admin.call<{ data: Entry[] }>("GET", `/organizations/${id}/statement`)).body.data;
  const invalid = { status: 400, body: { error: { code: "invalid_value" } } };

  test("Closing ends tokens and allowances, revokes the rest with its fate, and is final.", async () => {
    const { id, token } = await makeOrganization(service, "5");
    const path = `/organizations/${id}`;
    await admin.call("POST", `${path}/allowances`, { amount: 2 });
    const effective_at = new Date(Date.now() + 86_400_000).toISOString();
    await admin.call("POST", `${path}/grants`, { amount: 3, effective_at });
    expect((await ask(token)).status).toBe(200);
    const { creditsUsed } = await settledUsage(service, token);
    const closed = await close(id, "refunded");
    expect(closed.status, JSON.stringify(closed.body)).toBe(200);
    expect(closed.body).toMatchObject({ status: "closed", credits: { available: 0, held: 0, used: creditsUsed } });
    await expect.poll(async () => (await ask(token)).status, { timeout: 60_000 }).toBe(401);
    const revoked = (await entriesOf(id)).filter(({ note }) => note === "Closed: the rest is refunded.");
    expect(revoked.reduce((sum, { amount }) => sum + amount, 0)).toBeCloseTo(creditsUsed - 10, 6);
    const allowances = await admin.call("GET", `${path}/allowances`);
    expect(allowances.body).toMatchObject({ data: [{ ended_at: expect.any(String) }] });
    const grants = await admin.call<{ data: { state: string }[] }>("GET", `${path}/grants`);
    expect(grants.body.data.filter(({ state }) => state === "pending")).toMatchObject([{ amount: 3, revoked: 3 }]);
    for (const refused of [
      await admin.call("PATCH", path, { status: "active" }),
      await admin.call("PATCH", path, { status: "paused" }),
      await admin.call("POST", `${path}/grants`, { amount: 1 }),
      await admin.call("POST", `${path}/allowances`, { amount: 1 }),
      await admin.call("POST", "/tokens", { organization_id: id, name: "late" }),
    ]) {
      expect(refused).toMatchObject(invalid);
      expect(JSON.stringify(refused.body)).toContain("closed");
    }
    expect(await admin.call("PATCH", path, { note: "Gone to a competitor" })).toMatchObject({ status: 200 });
    expect((await close(id)).body).toMatchObject({ status: "closed", credits: { available: 0 } });
    expect((await entriesOf(id)).filter(({ note }) => note?.startsWith("Closed"))).toHaveLength(revoked.length);
    expect((await admin.call("GET", "/organizations?status=closed")).body).toMatchObject({ data: [{ id }] });
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });

  test("Running requests hold credits: the organization is paused, and closed when they have ended.", async () => {
    const { id, token } = await makeOrganization(service, "5");
    const running = ask(token, "slow");
    const creditsOf = async () => (await admin.call("GET", `/organizations/${id}`)).body;
    await expect.poll(async () => (await creditsOf()).credits, { timeout: 60_000 }).not.toMatchObject({ held: 0 });
    expect(await close(id)).toMatchObject({ status: 429, body: { error: { code: "credits_held" } } });
    expect(await creditsOf()).toMatchObject({ status: "paused", pauses_allowances: true });
    release();
    expect((await running).status).toBe(200);
    await expect.poll(async () => (await creditsOf()).credits, { timeout: 60_000 }).toMatchObject({ held: 0 });
    const both = await Promise.all([close(id), close(id)]);
    expect(both.map(({ status }) => status)).toEqual([200, 200]);
    expect(await creditsOf()).toMatchObject({ status: "closed", credits: { available: 0 } });
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });

  test("Credits that come back to a closed organization are revoked by a repetition.", async () => {
    const { id, token } = await makeOrganization(service, "5");
    await (await ask(token)).text();
    const { creditsUsed } = await settledUsage(service, token);
    await close(id);
    await admin.call("POST", `/organizations/${id}/credits`, { amount: creditsUsed });
    expect((await close(id, "refunded")).body).toMatchObject({ status: "closed", credits: { available: 0 } });
    expect((await entriesOf(id)).at(-1)).toMatchObject({ amount: -creditsUsed, note: "Closed: the rest is refunded." });
  });

  test("The playground, an unknown organization and an unknown fate are refused.", async () => {
    expect(await close("org_playground")).toMatchObject(invalid);
    expect(await close("org_none")).toMatchObject({ status: 404, body: { error: { code: "not_found" } } });
    const { id } = await makeOrganization(service, "5");
    expect(await close(id, "kept")).toMatchObject({ status: 400, body: { error: { param: "rest" } } });
    expect((await admin.call("GET", `/organizations/${id}`)).body).toMatchObject({ status: "active" });
  });

  test("The command closes an organization without a token and without credits, too.", async () => {
    const { id } = await service.tollgate<{ id: string }>("org", "create", "Short-lived");
    expect(await service.tollgate("org", "close", id, "--rest", "lapsed")).toMatchObject({ id, status: "closed" });
    expect(await entriesOf(id)).toEqual([]);
  });
});
