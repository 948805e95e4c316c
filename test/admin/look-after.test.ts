import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AdminClient, FROM_CONSOLE, operator, signIn } from "../support/admin.ts";
import {
  MEMBER_SCOPES,
  makeDirectory,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

const COMPLETIONS = "/v1/chat/completions";
const IN_FORCE_MS = 1_000;

let dataDir: string;
let service: RunningService;
let owner: Organization;

const config = { playground: { openToGuests: true }, server: { trustProxy: "127.0.0.1" } };
beforeAll(async () => {
  dataDir = await makeDirectory();
  service = await startService({ config, dataDir });
  owner = await makeOrganization(service, "10", { scopes: MEMBER_SCOPES });
});
afterAll(() => service?.end());

const admin = () => operator(service);
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const complete = (token: string, fields: object = {}) =>
  send(service, COMPLETIONS, token, {
    model: "sandbox/echo",
    messages: [{ role: "user", content: "hello there" }],
    ...fields,
  });
const codeOf = async (answer: Response) => ((await answer.json()) as { error?: { code: string } }).error?.code;

interface Listed {
  data: Record<string, unknown>[];
  next_cursor: string | null;
}

describe("organizations", () => {
  test("organizations are created, found by a part of their name, renamed and shown with their credits", async () => {
    const made = await admin().call("POST", "/organizations", { name: "Ärzte 100% & Söhne_", limits: null });
    expect([made.status, made.body]).toMatchObject([
      201,
      { object: "organization", status: "active", limits: null, credits: { available: 0, held: 0, used: 0, total: 0 } },
    ]);
    const find = async (search: string) => {
      const { body } = await admin().call<Listed>("GET", `/organizations?search=${encodeURIComponent(search)}`);
      return body.data.map(({ id }) => id);
    };
    for (const part of ["ärzte", "100%", "söhne_", String(made.body.id)])
      expect(await find(part)).toEqual([made.body.id]);
    for (const part of ["100_", "%%", "nothing", "'; --"]) expect(await find(part)).toEqual([]);
    await admin().call("PATCH", `/organizations/${made.body.id}`, { name: "Praxis" });
    expect((await admin().call("GET", `/organizations/${made.body.id}`)).body.name).toBe("Praxis");
    expect((await admin().call("GET", `/organizations/${owner.id}`)).body.credits).toMatchObject({ total: 10 });
  });

  test("every organization is on exactly one page of the list", async () => {
    for (const name of ["a", "b", "c"]) await admin().call("POST", "/organizations", { name: `Paged ${name}` });
    const names = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const from: string = cursor === "" ? "" : `&cursor=${cursor}`;
      const { body }: { body: Listed } = await admin().call("GET", `/organizations?search=paged&limit=1${from}`);
      names.push(...body.data.map(({ name }) => name));
      cursor = body.next_cursor;
    }
    expect(names.sort()).toEqual(["Paged a", "Paged b", "Paged c"]);
  });

  test.each([
    [{ name: "" }, "name"],
    [{ name: "a\nb" }, "name"],
    [{ name: "x", limits: { requests_per_minute: 0 } }, "limits.requests_per_minute"],
    [{ name: "x", limits: { requestsPerMinute: 5 } }, "limits.requestsPerMinute"],
    [{ name: 5 }, "name"],
    [{}, "name"],
  ])("%j is refused, naming %s", async (body, param) => {
    const answer = await admin().call("POST", "/organizations", body);
    expect([answer.status, (answer.body.error as { param: string }).param]).toEqual([400, param]);
  });

  test("a paused organization is refused within a second, and its running answers are completed", async () => {
    const paused = await makeOrganization(service, "10", { scopes: MEMBER_SCOPES });
    const running = await complete(paused.token, { model: "sandbox/story", stream: true, max_tokens: 60 });
    const { body } = await admin().call("PATCH", `/organizations/${paused.id}`, { status: "paused" });
    expect(body.status).toBe("paused");
    await wait(IN_FORCE_MS);
    const refused = await complete(paused.token);
    expect([refused.status, await codeOf(refused)]).toEqual([403, "organization_paused"]);
    expect(await running.text()).toContain("data: [DONE]");
    expect((await signIn(service, paused.token)).headers.cookie).toMatch(/^tollgate_session=/);
    await admin().call("PATCH", `/organizations/${paused.id}`, { status: "active" });
    await wait(IN_FORCE_MS);
    expect((await complete(paused.token)).status).toBe(200);
  });

  test("the allowances of an organization are paused and resumed with it, if the operator chooses so", async () => {
    const { id } = (await admin().call("POST", "/organizations", { name: "Stopped" })).body;
    const change = async (body: object) => (await admin().call("PATCH", `/organizations/${id}`, body)).body;
    expect(await change({ status: "paused" })).toMatchObject({ status: "paused", pauses_allowances: false });
    const stopped = { status: "paused", pauses_allowances: true };
    expect(await change(stopped)).toMatchObject(stopped);
    await admin().call("POST", `/organizations/${id}/allowances`, { amount: 5 });
    expect((await admin().call("GET", `/organizations/${id}`)).body.credits).toMatchObject({ total: 0 });
    expect(await change({ status: "active" })).toMatchObject({ status: "active", pauses_allowances: false });
    for (const body of [{ pauses_allowances: true }, { pauses_allowances: true, status: "active" }]) {
      expect((await change(body)).error).toMatchObject({ code: "invalid_value", param: "pauses_allowances" });
    }
    const { body } = await admin().call<Listed>("GET", `/audit?organization_id=${id}&action=organization.change`);
    expect(body.data.map(({ before, after }) => [before, after])).toEqual([
      [
        { status: "paused", pausesAllowances: true },
        { status: "active", pausesAllowances: false },
      ],
      [{ pausesAllowances: false }, { pausesAllowances: true }],
      [{ status: "active" }, { status: "paused" }],
    ]);
  });

  test("limits take effect within a second, and those of a token override those of its organization", async () => {
    const limited = await makeOrganization(service, "10");
    const { body: own } = await admin().call("POST", "/tokens", {
      organization_id: limited.id,
      name: "narrower",
      limits: { requests_per_minute: 1 },
    });
    await admin().call("PATCH", `/organizations/${limited.id}`, { limits: { requests_per_minute: 3 } });
    await wait(IN_FORCE_MS);
    const statuses = async (token: string, count: number) => {
      const answers = [];
      for (let sent = 0; sent < count; sent += 1) answers.push((await send(service, "/v1/models", token)).status);
      return answers;
    };
    expect(await statuses(String(own.secret), 2)).toEqual([200, 429]);
    // The refused request did not count for the organization.
    expect(await statuses(limited.token, 3)).toEqual([200, 200, 429]);
  });
});

describe("tokens", () => {
  test("a token is created with its permissions, works, and is never shown again", async () => {
    const terms = {
      name: "shop",
      scopes: ["models:read"],
      models: ["sandbox/echo"],
      limits: { concurrent_requests: 2 },
      cap: 1.5,
      expires_at: "2090-01-01T00:00:00.000Z",
    };
    const { status, body } = await admin().call("POST", "/tokens", { organization_id: owner.id, ...terms });
    const { name, scopes, models, limits, expires_at } = terms;
    expect([status, body]).toMatchObject([
      201,
      { name, scopes, models, limits, expires_at, status: "active", cap: { amount: 1.5, spent: 0, held: 0 } },
    ]);
    expect((await send(service, "/v1/models", String(body.secret))).status).toBe(200);
    const shown = await admin().call("GET", `/tokens/${body.id}`);
    const listed = await admin().call("GET", `/tokens?organization_id=${owner.id}&search=SHOP`);
    for (const answer of [shown, listed])
      expect(JSON.stringify(answer.body)).not.toContain(String(body.secret).slice(12));
    expect(listed.body.data).toEqual([shown.body]);
  });

  test("a token is rotated with an overlap, and revoked within a second", async () => {
    const { tokenId, token } = await makeToken(service, owner.id);
    const rotated = await admin().call("POST", `/tokens/${tokenId}/rotate`, { overlap_seconds: 60 });
    expect([rotated.status, rotated.body.replaces]).toMatchObject([201, { id: tokenId, status: "active" }]);
    expect((await send(service, "/v1/models", token)).status).toBe(200);
    expect((await send(service, "/v1/models", String(rotated.body.secret))).status).toBe(200);
    const revoked = await admin().call("POST", `/tokens/${rotated.body.id}/revoke`);
    expect(revoked.body.status).toBe("revoked");
    expect((await admin().call("POST", `/tokens/${rotated.body.id}/revoke`)).body).toEqual(revoked.body);
    await wait(IN_FORCE_MS);
    expect((await send(service, "/v1/models", String(rotated.body.secret))).status).toBe(401);
  });

  test("a token is rotated once: a retry is refused and names the successor, which can be replaced until it is used", async () => {
    const { tokenId } = await makeToken(service, owner.id, {
      expires_at: new Date(Date.now() + 30 * 86_400_000).toISOString(),
    });
    const rotate = (body: object) => admin().call("POST", `/tokens/${tokenId}/rotate`, body);
    const first = await rotate({ overlap_seconds: 60 });
    const retry = await rotate({ overlap_seconds: 60 });
    expect([retry.status, retry.body.error]).toMatchObject([
      409,
      { code: "already_rotated", successor_id: first.body.id, message: expect.stringContaining(String(first.body.id)) },
    ]);
    const second = await rotate({ overlap_seconds: 60, replace: true });
    expect([second.status, second.body.replaces]).toMatchObject([201, { id: tokenId, successor_id: second.body.id }]);
    const lifeMs = ({ body }: typeof second) =>
      Date.parse(String(body.expires_at)) - Date.parse(String(body.created_at));
    expect(lifeMs(second)).toBe(lifeMs(first));
    expect(Math.round(lifeMs(second) / 86_400_000)).toBe(30);
    expect((await admin().call("GET", `/tokens/${first.body.id}`)).body.status).toBe("revoked");
    expect((await send(service, "/v1/models", String(second.body.secret))).status).toBe(200);
    const used = async () => (await admin().call("GET", `/tokens/${second.body.id}`)).body.last_used_at !== null;
    while (!(await used())) await wait(10);
    const refused = await rotate({ replace: true });
    expect([refused.status, refused.body.error]).toMatchObject([409, { successor_id: second.body.id }]);
    expect((await send(service, "/v1/models", String(second.body.secret))).status).toBe(200);
  });

  test.each([
    [{ name: "x", organization_id: "org_none" }, "organization_id"],
    [{ name: "x", scopes: ["admin"] }, "scopes[0]"],
    [{ name: "x", scopes: [] }, "scopes"],
    [{ name: "x", expires_at: "2001-01-01T00:00:00Z" }, "expires_at"],
    [{ name: "x", expires_at: "tomorrow" }, "expires_at"],
    [{ name: "x", expires_at: "2030-02-30T00:00:00Z" }, "expires_at"],
    [{ name: "x", cap: 0 }, "cap"],
    [{ name: "x", cap: 0.0000001 }, "cap"],
  ])("%j is refused, naming %s", async (fields, param) => {
    const answer = await admin().call("POST", "/tokens", { organization_id: owner.id, ...fields });
    expect([answer.status, (answer.body.error as { param: string }).param]).toEqual([400, param]);
  });
});

describe("the playground's token", () => {
  const playground = (client: AdminClient, body: object = {}) => client.call("POST", "/playground/token", body);

  test("the playground token of a member can complete, but not read the usage", async () => {
    const member = await signIn(service, owner.token);
    const { status, body } = await playground(member);
    expect([status, body.organization_id]).toEqual([201, owner.id]);
    expect(Date.parse(String(body.expires_at)) - Date.now()).toBeLessThanOrEqual(15 * 60_000);
    const answer = await complete(String(body.token));
    expect([answer.status, ((await answer.json()) as { organization_id: string }).organization_id]).toEqual([
      200,
      owner.id,
    ]);
    expect((await send(service, "/v1/usage", String(body.token))).status).toBe(403);
    const { body: requests } = await admin().call<Listed>("GET", `/requests?organization_id=${owner.id}&limit=1`);
    expect(requests.data[0]?.token_id).toBe(owner.tokenId);
    expect((await playground(member)).body.token).toBe(body.token);
  });

  test("a playground token has the rights of the token that it represents, and ends with it", async () => {
    const scopes = ["console:read", "chat.completions:write"];
    const narrow = await makeToken(service, owner.id, { scopes, models: ["sandbox/story"] });
    const { body } = await playground(await signIn(service, narrow.token));
    const refused = await complete(String(body.token));
    expect([refused.status, await codeOf(refused)]).toEqual([403, "model_not_allowed"]);
    expect((await send(service, "/v1/models", String(body.token))).status).toBe(403);
    await service.tollgate("token", "revoke", narrow.tokenId);
    await wait(IN_FORCE_MS);
    expect((await complete(String(body.token), { model: "sandbox/story" })).status).toBe(401);
    const reader = await makeToken(service, owner.id, { scopes: ["console:read"] });
    expect((await playground(await signIn(service, reader.token))).status).toBe(403);
  });

  test("a playground token ends with its session", async () => {
    const session = await signIn(service, owner.token);
    const { body } = await playground(session);
    const { body: elsewhere } = await playground(await signIn(service, owner.token));
    expect((await complete(String(body.token))).status).toBe(200);
    expect((await session.call("DELETE", "/session")).status).toBe(204);
    await wait(IN_FORCE_MS);
    expect((await complete(String(body.token))).status).toBe(401);
    expect((await complete(String(elsewhere.token))).status).toBe(200);
  });

  test("a playground token cannot be used to sign in", async () => {
    const { body } = await playground(await signIn(service, owner.token));
    const answer = await new AdminClient(service, FROM_CONSOLE).call("POST", "/session", { token: body.token });
    expect(answer.status).toBe(403);
  });

  test("the playground token of the operator is charged to a token of its own, which can be revoked", async () => {
    expect((await playground(admin())).status).toBe(400);
    expect((await playground(admin(), { organization_id: "org_none" })).status).toBe(404);
    const { body } = await playground(admin(), { organization_id: owner.id });
    expect((await complete(String(body.token))).status).toBe(200);
    const { body: tokens } = await admin().call<Listed>("GET", `/tokens?organization_id=${owner.id}&search=console`);
    expect(tokens.data).toMatchObject([{ name: "Console playground", status: "active" }]);
    await admin().call("POST", `/tokens/${tokens.data[0]?.id}/revoke`);
    await wait(IN_FORCE_MS);
    expect((await complete(String(body.token))).status).toBe(401);
    expect((await playground(admin(), { organization_id: owner.id })).status).toBe(409);
  });

  test("a guest completes free of charge if the playground is open, within a limit per address", async () => {
    const guest = new AdminClient(service, { ...FROM_CONSOLE, "x-forwarded-for": "10.1.1.1" });
    expect((await playground(guest, { organization_id: owner.id })).status).toBe(404);
    const { status, body } = await playground(guest);
    expect([status, body.organization_id]).toEqual([201, "org_playground"]);
    expect((await complete(String(body.token))).status).toBe(200);
    const statuses = [];
    for (let asked = 0; asked < 10; asked += 1) statuses.push((await playground(guest)).status);
    expect(statuses.at(-1)).toBe(429);
  });

  test("guests are counted per IPv6 /64 network, when they request a token and when they use it", async () => {
    const guestAt = (address: string) => new AdminClient(service, { ...FROM_CONSOLE, "x-forwarded-for": address });
    const minted = [];
    for (let host = 1; host <= 11; host += 1) minted.push((await playground(guestAt(`2001:db8:1:2::${host}`))).status);
    expect(minted).toEqual([...Array.from({ length: 10 }, () => 201), 429]);
    const { body } = await playground(guestAt("2001:db8:1:3::1"));
    const completed = [];
    for (let host = 1; host <= 11; host += 1) {
      const headers = { "x-forwarded-for": `2001:db8:1:4::${host}` };
      const request = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }] };
      completed.push((await send(service, COMPLETIONS, String(body.token), request, { headers })).status);
    }
    expect(completed).toEqual([...Array.from({ length: 10 }, () => 200), 429]);
  });
});

test("every change is recorded with its actor and the values before and after", async () => {
  const { body: made } = await admin().call("POST", "/organizations", { name: "Audited" });
  await admin().call("PATCH", `/organizations/${made.id}`, { status: "paused", limits: { tokens_per_minute: 9 } });
  const { id } = await service.tollgate("token", "create", "--org", String(made.id), "--name", "by hand");
  const { body: token } = await admin().call("POST", "/tokens", {
    organization_id: made.id,
    name: "by console",
    cap: 2,
  });
  await admin().call("POST", `/tokens/${token.id}/rotate`, {});
  await admin().call("POST", `/tokens/${token.id}/revoke`);
  await admin().call("POST", `/tokens/${token.id}/revoke`);
  const { body } = await admin().call<Listed>("GET", `/audit?organization_id=${made.id}`);
  const byOperator = { kind: "operator", id: "adm_first", address: "127.0.0.1" };
  expect(body.data.reverse()).toMatchObject([
    { action: "organization.create", actor: byOperator, before: null, after: { name: "Audited" }, subject_id: made.id },
    {
      action: "organization.change",
      before: { status: "active", limits: null },
      after: { status: "paused", limits: { tokensPerMinute: 9 } },
    },
    { action: "token.create", actor: { kind: "command", id: null }, subject_id: id, after: { name: "by hand" } },
    { action: "token.create", actor: byOperator, subject_id: token.id, after: { name: "by console", cap: "2" } },
    {
      ...{ action: "token.rotate", subject_id: token.id, request_id: expect.stringMatching(/^req_/) },
      before: { successor: null, expiresAt: null },
      after: { successor: expect.stringMatching(/^tok_/), expiresAt: expect.any(String) },
    },
    { action: "token.revoke", subject_id: token.id },
  ]);
  expect(JSON.stringify(body)).not.toContain(String(token.secret).slice(15));
});

test("the last use of a token is known after a restart", async () => {
  const { token, tokenId } = await makeToken(service, owner.id);
  expect((await admin().call("GET", `/tokens/${tokenId}`)).body.last_used_at).toBeNull();
  const printed = operator(service);
  const beganAtMs = Date.now();
  await send(service, "/v1/models", token);
  await service.end();
  service = await startService({ config, dataDir });
  const { body } = await new AdminClient(service, printed.headers).call("GET", `/tokens/${tokenId}`);
  expect(Date.parse(String(body.last_used_at))).toBeGreaterThanOrEqual(beganAtMs - 1);
});
