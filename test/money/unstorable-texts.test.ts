import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { makeOrganization, type RunningService, send, settledUsage, startService } from "../support/service.ts";

/** Texts that a store would give back as another text, and what is kept of them. */
const KEPT = [
  ["half of a surrogate pair", "ada\ud83d", "ada\ufffd"],
  ["the NUL character", "ada\0", "ada\ufffd"],
] as const;

describe.each(hasPostgres ? (["SQLite", "PostgreSQL"] as const) : (["SQLite"] as const))("%s", (store) => {
  let database: TestDatabase | undefined;
  let service: RunningService;
  beforeAll(async () => {
    if (store === "PostgreSQL") database = await createTestDatabase();
    service = await startService({ databaseUrl: database?.url });
  });
  afterAll(async () => {
    await service?.end();
    await database?.drop();
  });

  const messages = [{ role: "user", content: "one two three" }];
  const ask = (token: string, fields: object) =>
    send(service, "/v1/chat/completions", token, { model: "sandbox/echo", messages, ...fields });

  test.each(KEPT)("A budget counts a value with %s, and its charges are booked.", async (_name, sent, kept) => {
    const admin = operator(service);
    const { id, token } = await makeOrganization(service, "5");
    const terms = { name: "users", each: "metadata.user", window: "day", amount: 1 };
    const { body: budget } = await admin.call<{ id: string }>("POST", `/organizations/${id}/budgets`, terms);
    for (const fields of [
      { metadata: { user: sent } },
      { user: sent },
      { metadata: { user: sent }, stream: true },
      { metadata: { user: kept, [sent]: "a key" } },
    ]) {
      const answer = await ask(token, fields);
      const text = await answer.text();
      expect([answer.status, text.includes("internal_error")], text).toEqual([200, false]);
    }
    const usage = await settledUsage(service, token);
    expect(usage.creditsUsed).toBeGreaterThan(0);
    const { body } = await admin.call("GET", `/organizations/${id}/budgets/${budget.id}`);
    expect(body.counters).toMatchObject({ data: [{ value: kept, spent: usage.creditsUsed, held: 0 }] });
    for (const path of [
      `/requests?metadata_key=user&metadata_value=${encodeURIComponent(kept)}`,
      `/requests.csv?metadata_key=user&metadata_value=${encodeURIComponent(kept)}`,
      "/requests/sums?by=metadata&metadata_key=user",
    ]) {
      expect((await admin.call("GET", path)).status, path).toBe(200);
    }
    const found = await admin.call<{ data: unknown[] }>(
      "GET",
      `/requests?organization_id=${id}&metadata_key=user&metadata_value=${encodeURIComponent(kept)}`,
    );
    expect(found.body.data).toHaveLength(4);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });

  test.each(KEPT)("The admin API refuses texts with %s, as values and as keys.", async (_name, sent) => {
    const admin = operator(service);
    const { id } = await makeOrganization(service, "5");
    const budgets = `/organizations/${id}/budgets`;
    const terms = { name: "teams", window: "day", amount: 1 };
    for (const [path, body, param] of [
      ["/tokens", { organization_id: id, name: sent }, "name"],
      ["/tokens", { organization_id: id, name: "a", pinned: { [sent]: "b" } }, "pinned.ada\ufffd"],
      ["/organizations", { name: sent }, "name"],
      [`/organizations/${id}/grants`, { amount: 1, reference: sent }, "reference"],
      [budgets, { ...terms, name: sent }, "name"],
      [budgets, { ...terms, selector: { metadata: { team: ["red", sent] } } }, "selector.metadata.team.1"],
    ] as const) {
      const refused = { status: 400, body: { error: { code: "invalid_value", param } } };
      expect(await admin.call("POST", path, body), path).toMatchObject(refused);
    }
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });
});
