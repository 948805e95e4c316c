import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator, signIn } from "../support/admin.ts";
import { onOneDay } from "../support/patience.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

let service: RunningService;
let owner: Organization;

beforeAll(async () => {
  service = await startService();
  owner = await makeOrganization(service, "10");
});
afterAll(() => service?.end());

const admin = () => operator(service);
const complete = (token: string, fields: object = {}) =>
  send(service, "/v1/chat/completions", token, {
    model: "sandbox/echo",
    messages: [{ role: "user", content: "hello there" }],
    ...fields,
  });

interface Listed {
  data: Record<string, unknown>[];
  next_cursor: string | null;
}

describe("credits", () => {
  const made = async () => String((await admin().call("POST", "/organizations", { name: "Credited" })).body.id);
  const book = (id: string, what: string, body: object) => admin().call("POST", `/organizations/${id}/${what}`, body);

  test("credits are granted once per reference, listed, revoked as far as they are available, and refunded", async () => {
    const id = await made();
    const terms = { amount: 12.5, reference: "invoice 7", priority: 3, expires_at: "2090-01-01T00:00:00.000Z" };
    const first = await book(id, "grants", terms);
    expect([first.status, first.body]).toMatchObject([
      201,
      { amount: 12.5, repeated: false, credits: { total: 12.5 } },
    ]);
    const again = await book(id, "grants", terms);
    expect([again.status, again.body]).toMatchObject([200, { id: first.body.id, amount: 12.5, repeated: true }]);
    await book(id, "grants", { amount: 0.000001 });
    const { body: grants } = await admin().call<Listed>("GET", `/organizations/${id}/grants`);
    expect(grants.data).toMatchObject([
      { amount: 0.000001, reference: null, state: "active", expires_at: null },
      { amount: 12.5, reference: "invoice 7", priority: 3, expires_at: terms.expires_at, remaining: 12.5, revoked: 0 },
    ]);
    const taken = await book(id, "revocations", { amount: 2, grant_id: first.body.id, note: "a mistake" });
    expect(taken.body).toMatchObject({ amount: 2, credits: { available: 10.500001 } });
    const all = await book(id, "revocations", { all: true });
    expect(all.body).toMatchObject({ amount: 10.500001, credits: { available: 0 } });
    expect((await book(id, "credits", { amount: 1 })).status).toBe(400);
    const { body: audit } = await admin().call<Listed>("GET", `/audit?organization_id=${id}`);
    const actions = audit.data.map(({ action }) => action);
    expect(actions.filter((action) => String(action).startsWith("credits."))).toEqual([
      "credits.revoke",
      "credits.revoke",
      "credits.grant",
      "credits.grant",
    ]);
    const actor = { kind: "operator", id: "adm_first", address: "127.0.0.1" };
    expect(audit.data.slice(0, 4)).toMatchObject([
      { subject_id: all.body.id, actor, before: null, after: { all: true, amount: 10.500001 } },
      { subject_id: taken.body.id, actor, after: { amount: 2, grant_id: first.body.id, note: "a mistake" } },
      { after: { amount: 0.000001 } },
      { subject_id: first.body.id, actor, after: terms, request_id: expect.stringMatching(/^req_/) },
    ]);
  });

  test("a reference with other terms is refused, and the error names what was booked", async () => {
    const id = await made();
    const refused = async (what: string, body: object) => {
      const { status, body: answer } = await book(id, what, body);
      return { status, error: answer.error };
    };
    const mismatch = (message: string) => ({
      status: 409,
      error: { code: "reference_mismatch", param: "reference", message: expect.stringContaining(message) },
    });
    const expires_at = "2090-01-01T00:00:00.000Z";
    const { body: grant } = await book(id, "grants", { amount: 12.5, reference: "a", expires_at });
    const granted = mismatch(
      `"a" was used with other terms: grant ${grant.id} of 12.5 credits, expiring at ${expires_at}`,
    );
    for (const other of [{ amount: 99 }, { expires_at: null }, { priority: 1 }, { effective_at: expires_at }]) {
      const body = { amount: 12.5, reference: "a", expires_at, ...other };
      expect(await refused("grants", body)).toMatchObject(granted);
    }
    const { body: revocation } = await book(id, "revocations", { all: true, reference: "b" });
    expect(await refused("revocations", { amount: 12.5, reference: "b" })).toMatchObject(
      mismatch(`revocation ${revocation.id} of 12.5 credits, everything that was available,`),
    );
    const { body: allowance } = await book(id, "allowances", { amount: 30, reference: "c" });
    for (const other of [{ amount: 40 }, { lapses: false }, { begins_at: expires_at }]) {
      const body = { amount: 30, reference: "c", ...other };
      expect(await refused("allowances", body)).toMatchObject(
        mismatch(`allowance ${allowance.id} of 30 credits a month`),
      );
    }
    expect((await admin().call("GET", `/organizations/${id}`)).body.credits).toMatchObject({ available: 30 });
    const { body: audit } = await admin().call<Listed>("GET", `/audit?organization_id=${id}`);
    expect(audit.data.map(({ action }) => action)).toEqual([
      "allowance.create",
      "credits.revoke",
      "credits.grant",
      "organization.create",
    ]);
  });

  test("a booking of a command is recorded like one of the API, once per reference", async () => {
    const id = await made();
    const run = (...words: string[]) => service.tollgate("credits", ...words);
    const grant = ["grant", "2.5", "--org", id, "--reference", "invoice 8"];
    const { id: grantId } = await run(...grant);
    await run(...grant);
    const { id: revocationId } = await run("revoke", "--all", "--org", id, "--note", "a mistake");
    const { id: allowanceId } = await run("allowance", "create", "30", "--org", id);
    for (const _ of [1, 2]) await run("allowance", "end", String(allowanceId));
    const { body: audit } = await admin().call<Listed>("GET", `/audit?organization_id=${id}`);
    const actor = { kind: "command", id: null, address: null };
    expect(audit.data.slice(0, -1)).toMatchObject([
      { action: "allowance.end", actor, subject_id: allowanceId, after: null },
      { action: "allowance.create", actor, subject_id: allowanceId, after: { amount: 30, lapses: true } },
      {
        action: "credits.revoke",
        actor,
        subject_id: revocationId,
        after: { amount: 2.5, all: true, note: "a mistake" },
      },
      { action: "credits.grant", actor, subject_id: grantId, after: { amount: 2.5, reference: "invoice 8" } },
    ]);
  });

  test("all credits are revoked only on request", async () => {
    const id = await made();
    const { body: grant } = await book(id, "grants", { amount: 810 });
    await book(id, "grants", { amount: 40 });
    const refused = async (body: object) => (await book(id, "revocations", body)).body.error;
    expect(await refused({ amount: 5_000_000 })).toMatchObject({
      code: "invalid_value",
      param: "amount",
      message: expect.stringContaining("850 credits are available"),
    });
    expect(await refused({ amount: 811, grant_id: grant.id })).toMatchObject({
      param: "amount",
      message: expect.stringContaining(`810 credits are left of ${grant.id}`),
    });
    for (const body of [{}, { amount: null }, { all: false }]) {
      expect(await refused(body)).toMatchObject({ code: "missing_required_parameter", param: "amount" });
    }
    expect(await refused({ amount: 1, all: true })).toMatchObject({ code: "invalid_value", param: "all" });
    expect((await admin().call("GET", `/organizations/${id}`)).body.credits).toMatchObject({ available: 850 });
    const ofGrant = await book(id, "revocations", { all: true, grant_id: grant.id });
    expect([ofGrant.status, ofGrant.body]).toMatchObject([201, { amount: 810, credits: { available: 40 } }]);
  });

  test("charged credits are refunded up to the charged amount", async () => {
    const { id, token } = await makeOrganization(service, "5");
    const { usage } = (await (await complete(token)).json()) as { usage: { cost: number } };
    const { body: listed } = await admin().call<Listed>("GET", `/requests?organization_id=${id}`);
    const request_id = listed.data[0]?.id;
    expect((await book(id, "credits", { amount: usage.cost + 1, request_id })).status).toBe(400);
    const terms = { amount: usage.cost, request_id, reference: "case 7" };
    const given = await book(id, "credits", { ...terms, note: "a bad answer" });
    expect([given.status, given.body]).toMatchObject([201, { amount: usage.cost, credits: { available: 5, used: 0 } }]);
    expect(await book(id, "credits", terms)).toMatchObject({
      status: 200,
      body: { id: given.body.id, repeated: true },
    });
    const refused = await book(id, "credits", { ...terms, request_id: null });
    expect([refused.status, refused.body.error]).toMatchObject([
      409,
      {
        code: "reference_mismatch",
        message: expect.stringContaining(`credits for the request ${request_id}, without expiry`),
      },
    ]);
    expect((await admin().call("GET", `/requests/${request_id}`)).body).toMatchObject({ credited: usage.cost });
    expect((await book(id, "credits", { amount: 1, request_id: "none" })).status).toBe(400);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });

  test("a statement has the balance after each change, in pages, by kind, for a period and as CSV", async () => {
    const { id, token } = await makeOrganization(service, "5", { scopes: MEMBER_SCOPES });
    const { usage } = (await (await complete(token)).json()) as { usage: { cost: number } };
    await book(id, "revocations", { amount: 1, note: "=1+1" });
    const path = `/organizations/${id}/statement`;
    const { body } = await admin().call<Listed & { opening: number; totals: object; closing: number }>("GET", path);
    const closing = Number((4 - usage.cost).toFixed(6));
    const none = { allowance: 0, credit: 0, lapse: 0 };
    expect([body.opening, body.closing]).toEqual([0, closing]);
    expect(body.totals).toEqual({ ...none, grant: 5, charge: -usage.cost, revoke: -1 });
    expect(body.data).toMatchObject([
      { kind: "grant", amount: 5, balance: 5 },
      {
        kind: "charge",
        amount: -usage.cost,
        balance: 5 - usage.cost,
        model: "sandbox/echo",
        tokens: { input: 2 },
        token_name: "unnamed",
      },
      { kind: "revoke", amount: -1, note: "=1+1", token_name: null },
    ]);
    const paged = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const from: string = cursor === "" ? "" : `&cursor=${cursor}`;
      const page: { body: Listed } = await admin().call("GET", `${path}?limit=1${from}`);
      paged.push(...page.body.data);
      cursor = page.body.next_cursor;
    }
    expect(paged).toEqual(body.data);
    expect((await admin().call<Listed>("GET", `${path}?kind=charge`)).body.data).toEqual([body.data[1]]);
    const later = await admin().call("GET", `${path}?from=2090-01-01T00:00:00Z`);
    const nothing = { ...none, grant: 0, charge: 0, revoke: 0 };
    expect(later.body).toMatchObject({ data: [], opening: closing, totals: nothing, closing });
    expect((await admin().call("GET", `${path}?cursor=bm8`)).status).toBe(400);
    const csv = await (await signIn(service, token)).call<string>("GET", `${path}.csv?to=2090-01-01T00:00:00Z`);
    expect(csv.headers.get("content-disposition")).toContain("attachment");
    const lines = csv.body.trimEnd().split("\r\n");
    expect([lines[0]?.split(",").slice(0, 4), lines.length]).toEqual([["time", "kind", "credits", "balance"], 11]);
    expect(lines[0]).toMatch(/,token_name,total$/);
    expect(lines[3]).toContain("'=1+1");
    const totals = lines.slice(4, 10).map((line) => [1, 2, -1].map((at) => line.split(",").at(at)).join());
    const added = [
      ["total_grant,,5", "total_allowance,,0"],
      ["total_credit,,0", "total_lapse,,0"],
    ] as const;
    expect(totals).toEqual([...added[0], `total_charge,,${-usage.cost}`, "total_revoke,,-1", ...added[1]]);
    expect(lines[10]).toContain("closing");
    const charges = await admin().call<string>("GET", `${path}.csv?kind=charge&to=2090-01-01T00:00:00Z`);
    expect(charges.headers.get("content-disposition")).toMatch(/filename="[a-z0-9-]+-statement-charge\.csv"/);
    expect(charges.body.trimEnd().split("\r\n")).toEqual([lines[0], lines[2], lines[6], lines[10]]);
    expect((await admin().call("GET", `${path}.csv?kind=gift`)).status).toBe(400);
  });

  test("an allowance grants credits every month until it ends", async () => {
    const id = await made();
    const { status, body } = await book(id, "allowances", { amount: 30 });
    expect([status, body]).toMatchObject([201, { amount: 30, lapses: true, reference: null, ended_at: null }]);
    expect((await admin().call("GET", `/organizations/${id}`)).body.credits).toMatchObject({ available: 30 });
    const path = `/organizations/${id}/allowances`;
    const ended = await admin().call("DELETE", `${path}/${body.id}`);
    expect([ended.status, ended.body.ended_at]).toEqual([200, expect.any(String)]);
    expect((await admin().call<Listed>("GET", path)).body.data.map((entry) => ({ ...entry, repeated: false }))).toEqual(
      [ended.body],
    );
    for (const absent of ["none", "allowance_"])
      expect((await admin().call("DELETE", `${path}/${absent}`)).status).toBe(404);
    expect((await admin().call("DELETE", `/organizations/${owner.id}/allowances/${body.id}`)).status).toBe(404);
  });

  test("a repeated reference creates one allowance", async () => {
    const id = await made();
    const first = await book(id, "allowances", { amount: 30, reference: "contract 7" });
    const again = await book(id, "allowances", { amount: 30, reference: "contract 7" });
    expect([first.status, again.status]).toEqual([201, 200]);
    expect(first.body).toMatchObject({ amount: 30, reference: "contract 7", repeated: false });
    expect(again.body).toEqual({ ...first.body, repeated: true });
    expect((await admin().call("GET", `/organizations/${id}`)).body.credits).toMatchObject({ available: 30 });
  });

  test.each([
    ["grants", {}, "amount"],
    ["grants", { amount: -1 }, "amount"],
    ["grants", { amount: 1e-7 }, "amount"],
    ["grants", { amount: "5" }, "amount"],
    ["grants", { amount: 1, expires_at: "2001-01-01T00:00:00Z" }, "expires_at"],
    ["grants", { amount: 1, reference: "a\nb" }, "reference"],
    ["revocations", { amount: 1, grant_id: "grant_none" }, "grant_id"],
    ["credits", { amount: 1, request_id: "none" }, "request_id"],
    ["allowances", { amount: 1, begins_at: "2001-01-01T00:00:00Z" }, "begins_at"],
  ])("%s with %j is refused, naming %s", async (what, body, param) => {
    const answer = await book(owner.id, what, body);
    expect([answer.status, (answer.body.error as { param: string }).param]).toEqual([400, param]);
  });

  test("the playground organization cannot get credits", async () => {
    expect((await book("org_playground", "grants", { amount: 1 })).status).toBe(400);
    expect((await book("org_playground", "allowances", { amount: 1 })).status).toBe(400);
  });
});

describe("requests", () => {
  test("the end user that a request names is stored on every wire, unless it has a label of this name", async () => {
    const { id, token } = await makeOrganization(service, "5");
    const messages = [{ role: "user", content: "hello" }];
    const asked: [path: string, body: object, user: string | null][] = [
      ["/v1/chat/completions", { messages, user: "ann" }, "ann"],
      ["/v1/chat/completions", { messages, user: "ann", safety_identifier: "ben" }, "ben"],
      ["/v1/chat/completions", { messages, user: "ann", metadata: { user: "carl" } }, "carl"],
      ["/v1/chat/completions", { messages }, null],
      ["/v1/responses", { input: "hello", safety_identifier: "dora" }, "dora"],
      ["/v1/messages", { messages, max_tokens: 9, metadata: { user_id: "e".repeat(600) } }, "e".repeat(512)],
      ["/v1/embeddings", { model: "sandbox/embed", input: "hello", user: "finn" }, "finn"],
    ];
    for (const [path, body, user] of asked) {
      const answer = await send(service, path, token, { model: "sandbox/echo", ...body });
      expect(answer.status).toBe(200);
      await answer.arrayBuffer();
      const { body: listed } = await admin().call<Listed>("GET", `/requests?organization_id=${id}&limit=1`);
      expect(listed.data).toMatchObject([{ user }]);
    }
  });

  test("requests are listed and explained with their hold, charge and grants", async () => {
    const organization = await makeOrganization(service, "5");
    const answer = await complete(organization.token, { metadata: { order: "7" }, max_tokens: 50 });
    const { usage } = (await answer.json()) as { usage: { cost: number } };
    await complete(organization.token, { model: "sandbox/fault", messages: [{ role: "user", content: "status 500" }] });
    const { body } = await admin().call<Listed>("GET", `/requests?organization_id=${organization.id}`);
    expect(body.data.map(({ status }) => status)).toEqual(["failed", "complete"]);
    const { body: detail } = await admin().call("GET", `/requests/${body.data[1]?.id}`);
    expect(detail).toMatchObject({
      request_id: answer.headers.get("x-request-id"),
      organization_name: "Test",
      model: "sandbox/echo",
      route: "sandbox/echo",
      charged: usage.cost,
      tokens: { input: 2, output: 2, cached_input: 0, cache_write: 0, reasoning: 0 },
      prices: { input: 1, output: 2 },
      basis: "reported",
      ending: "complete",
      metadata: { order: "7" },
      shortfall: 0,
      is_idempotent: false,
    });
    expect(detail.held).toBeGreaterThan(usage.cost);
    expect(detail.draws).toMatchObject([{ amount: usage.cost }]);
    for (const [query, count] of [
      [`model=sandbox/fault&organization_id=${organization.id}`, 1],
      [`status=complete&organization_id=${organization.id}`, 1],
      [`status=running&organization_id=${organization.id}`, 0],
      [`token_id=${organization.tokenId}`, 2],
      [`request_id=${detail.request_id}`, 1],
    ] as const) {
      expect([query, (await admin().call<Listed>("GET", `/requests?${query}`)).body.data.length]).toEqual([
        query,
        count,
      ]);
    }
  });
});

test("the overview has credits, spending rate, days and rankings, for one organization and for all", async () => {
  await onOneDay();
  const organization = await makeOrganization(service, "5");
  const { usage } = (await (await complete(organization.token)).json()) as { usage: { cost: number } };
  await complete(organization.token, { model: "sandbox/fault", messages: [{ role: "user", content: "status 500" }] });
  const today = new Date().toISOString().slice(0, 10);
  const { body } = await admin().call("GET", `/overview?organization_id=${organization.id}`);
  expect(body).toMatchObject({
    organization_id: organization.id,
    to: today,
    pending_days: 0,
    // The organization was created less than an hour ago.
    credits: { total: 5, used: usage.cost, held: 0, spent_per_day: expect.closeTo(24 * usage.cost, 8) },
    totals: { requests: 2, errors: 1, spent: usage.cost, input_tokens: 2, output_tokens: 2 },
    top_models: [
      { model: "sandbox/echo", spent: usage.cost },
      { model: "sandbox/fault", errors: 1 },
    ],
    top_tokens: [{ token_id: organization.tokenId, name: "unnamed", organization_id: organization.id, requests: 2 }],
    top_organizations: [],
  });
  const days = body.days as { day: string; requests: number; first_token_ms: object | null }[];
  expect([days.length, days.at(-1)?.day, days.at(-1)?.requests]).toEqual([30, today, 2]);
  expect(days.at(-1)?.first_token_ms).toMatchObject({ p50: expect.any(Number), p95: expect.any(Number) });
  const { body: all } = await admin().call<{ top_organizations: object[] }>(
    "GET",
    `/overview?from=${today}&to=${today}`,
  );
  expect(all.top_organizations).toContainEqual(
    expect.objectContaining({ organization_id: organization.id, name: "Test", requests: 2 }),
  );
  for (const query of ["from=2030-02-30", "from=2999-01-01", "from=2020-01-01", "to=tomorrow"]) {
    expect([query, (await admin().call("GET", `/overview?${query}`)).status]).toEqual([query, 400]);
  }
});

test("the operator sees the routes of models, and a member the models of their token", async () => {
  const { body } = await admin().call<Listed>("GET", "/models");
  const echo = body.data.find(({ id }) => id === "sandbox/echo");
  expect(echo).toMatchObject({
    prices: { input: 1, output: 2 },
    routes: [{ route: "sandbox/echo", prices: { input: 1 }, health: { state: "closed" } }],
  });
  const { token } = await makeToken(service, owner.id, { scopes: MEMBER_SCOPES, models: ["sandbox/echo"] });
  const { body: seen } = await (await signIn(service, token)).call<Listed>("GET", "/models");
  expect(seen.data.map(({ id, routes }) => [id, routes])).toEqual([["sandbox/echo", null]]);
});
