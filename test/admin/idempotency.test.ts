import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SCOPES } from "../../src/api/principal.ts";
import { adminEndpoints } from "../../src/http/admin/endpoint.ts";
import { AdminClient, type Answer, FROM_CONSOLE, firstAdminToken, operator, signIn } from "../support/admin.ts";
import { makeDirectory, type ServiceProcess, startProcess } from "../support/service.ts";
import { StripeStandIn, stripeSettings } from "../support/stripe.ts";

const ISSUER = "https://login.example.com";
const SIGN_IN = { issuer: ISSUER, clientId: "tollgate", clientSecret: "secret" };
const stripe = await new StripeStandIn().start();
const CONFIG = {
  payments: { stripe: stripeSettings(stripe.url) },
  playground: { openToGuests: true },
  identity: { issuers: [{ ...SIGN_IN, roles: [{ when: { iss: ISSUER }, role: "auditor" }] }] },
};

let dataDir: string;
let service: ServiceProcess;
let admin: AdminClient;

beforeAll(async () => {
  dataDir = await makeDirectory();
  service = await startProcess({ dataDir, config: CONFIG });
  admin = operator(service);
});
afterAll(async () => {
  await service.end();
  await stripe.close();
});

const newKey = () => randomUUID();
const send = (path: string, body: unknown, key: string, as = admin) =>
  as.call("POST", path, body, { "idempotency-key": key });
const replayOf = ({ headers }: Pick<Answer, "headers">) => headers.get("x-tollgate-idempotent-replay");
const errorOf = ({ status, body }: Answer) => ({ status, ...(body.error as { code: string; param: string | null }) });
const made = async () => String((await admin.call("POST", "/organizations", { name: "Keyed" })).body.id);
const tokenOf = async (organization_id: string) =>
  (
    await admin.call<{ id: string; secret: string }>("POST", "/tokens", {
      organization_id,
      name: "t",
      scopes: [...SCOPES],
    })
  ).body;
const availableOf = async (id: string) =>
  ((await admin.call("GET", `/organizations/${id}`)).body.credits as { available: number }).available;

const RECEIVER = { name: "keyed", format: "webhook", target: "https://hooks.example.com/" };
const VOUCHERS = { name: "keyed", count: 1, amount: 5 };
const receiverPath = async () => {
  const { body } = await send("/receivers", RECEIVER, newKey());
  return `/receivers/${(body as { id: string }).id}`;
};

const TOP_UP = { threshold: 5, amount: 10, monthly_maximum: 20 };
const topUpPath = async () => `/organizations/${await made()}/top-up`;

/** Every POST that takes a key, with a request that succeeds; a field that an answer shows once; who asks, if not the operator. */
const requests: Record<string, () => Promise<{ path: string; body?: object; secret?: string; as?: AdminClient }>> = {
  "/operators": async () => ({ path: "/operators", body: { name: newKey(), role: "auditor" }, secret: "secret" }),
  "/organizations": async () => ({ path: "/organizations", body: { name: "Keyed" } }),
  "/organizations/:id/close": async () => ({ path: `/organizations/${await made()}/close`, body: { rest: "lapsed" } }),
  "/organizations/:id/erase": async () => {
    const id = await made();
    await admin.call("POST", `/organizations/${id}/close`, { rest: "lapsed" });
    return { path: `/organizations/${id}/erase` };
  },
  "/organizations/:id/grants": async () => ({ path: `/organizations/${await made()}/grants`, body: { amount: 5 } }),
  "/organizations/:id/revocations": async () => {
    const id = await made();
    await admin.call("POST", `/organizations/${id}/grants`, { amount: 5 });
    return { path: `/organizations/${id}/revocations`, body: { amount: 2 } };
  },
  "/organizations/:id/credits": async () => {
    const id = await made();
    await admin.call("POST", `/organizations/${id}/grants`, { amount: 5 });
    const { secret } = await tokenOf(id);
    const completion = { model: "sandbox/echo", messages: [{ role: "user", content: "hello there" }], max_tokens: 20 };
    const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json" };
    const url = `${service.url}/v1/chat/completions`;
    await (await fetch(url, { method: "POST", headers, body: JSON.stringify(completion) })).text();
    return { path: `/organizations/${id}/credits`, body: { amount: 0.000001 } };
  },
  "/organizations/:id/checkouts": async () => {
    const body = { amount: 10, return_url: "https://ai.example.com/credits" };
    return { path: `/organizations/${await made()}/checkouts`, body };
  },
  "/organizations/:id/redemptions": async () => {
    const { codes } = (await send("/voucher-batches", VOUCHERS, newKey())).body as { codes: string[] };
    return { path: `/organizations/${await made()}/redemptions`, body: { code: codes[0] } };
  },
  "/voucher-batches": async () => ({ path: "/voucher-batches", body: VOUCHERS, secret: "codes" }),
  "/voucher-batches/:id/revoke": async () => {
    const { body } = await send("/voucher-batches", VOUCHERS, newKey());
    return { path: `/voucher-batches/${(body as { id: string }).id}/revoke` };
  },
  "/organizations/:id/top-up": async () => ({ path: await topUpPath(), body: TOP_UP }),
  "/organizations/:id/top-up/card": async () => {
    const path = await topUpPath();
    await send(path, TOP_UP, newKey());
    return { path: `${path}/card`, body: { return_url: "https://ai.example.com/credits" } };
  },
  "/organizations/:id/credit-requests": async () => {
    const id = await made();
    const as = await signIn(service, (await tokenOf(id)).secret);
    return { path: `/organizations/${id}/credit-requests`, body: { amount: 5 }, as };
  },
  "/organizations/:id/allowances": async () => {
    return { path: `/organizations/${await made()}/allowances`, body: { amount: 5 } };
  },
  "/organizations/:id/budgets": async () => ({
    path: `/organizations/${await made()}/budgets`,
    body: { name: "keyed", window: "day", amount: 1 },
  }),
  "/organizations/:id/budgets/:budget_id/raises": async () => {
    const path = `/organizations/${await made()}/budgets`;
    const { body } = await send(path, { name: "raised", window: "day", amount: 1 }, newKey());
    return { path: `${path}/${(body as { id: string }).id}/raises`, body: { amount: 1 } };
  },
  "/identities/block": async () => ({ path: "/identities/block", body: { issuer: ISSUER, subject: "s" } }),
  "/identities/unblock": async () => {
    const body = { issuer: ISSUER, subject: "t" };
    await send("/identities/block", body, newKey());
    return { path: "/identities/unblock", body };
  },
  "/tokens": async () => ({
    path: "/tokens",
    body: { organization_id: await made(), name: "keyed" },
    secret: "secret",
  }),
  "/tokens/:id/rotate": async () => {
    const { id } = await tokenOf(await made());
    return { path: `/tokens/${id}/rotate`, body: { overlap_seconds: 60 }, secret: "secret" };
  },
  "/tokens/:id/revoke": async () => {
    const { id } = await tokenOf(await made());
    return { path: `/tokens/${id}/revoke` };
  },
  "/receivers": async () => ({ path: "/receivers", body: RECEIVER, secret: "secret" }),
  "/receivers/:id/rotate": async () => ({ path: `${await receiverPath()}/rotate`, secret: "secret" }),
  "/receivers/:id/test": async () => ({ path: `${await receiverPath()}/test` }),
  "/deliveries/:id/replay": async () => {
    const { body } = await send(`${await receiverPath()}/test`, undefined, newKey());
    return { path: `/deliveries/${(body as { id: string }).id}/replay` };
  },
  "/routes/resume": async () => ({ path: "/routes/resume", body: { route: "sandbox/echo" } }),
  "/playground/token": async () => ({
    path: "/playground/token",
    body: { organization_id: await made() },
    secret: "token",
  }),
};

describe("a POST of the admin API with an Idempotency-Key", () => {
  const posts = adminEndpoints.filter(({ method }) => method === "POST");

  test("every POST except those of a sign-in takes an Idempotency-Key", () => {
    const paths = posts.filter(({ isRepeatable }) => isRepeatable !== false).map(({ path }) => path);
    expect(paths.toSorted()).toEqual(Object.keys(requests).toSorted());
    const others = posts.filter(({ isRepeatable }) => isRepeatable === false).map(({ path }) => path);
    expect(others).toEqual(["/session", "/session/authorization", "/session/callback"]);
  });

  test("every operation whose answer shows a secret declares its field", () => {
    for (const { path, answer } of posts) {
      const { schema, secret } = answer;
      const { properties = {} } = (schema ?? {}) as { properties?: Record<string, { type?: string }> };
      const shown = ["secret", "token", "password", "codes"].filter((name) =>
        ["string", "array"].includes(properties[name]?.type ?? ""),
      );
      expect([path, shown]).toEqual([path, secret === undefined ? [] : [secret.field]]);
    }
  });

  test.each(Object.entries(requests))("%s gets the first answer again, without a secret", async (_path, prepare) => {
    const { path, body, secret, as } = await prepare();
    const key = newKey();
    const first = await send(path, body, key, as);
    expect([first.status < 300, replayOf(first)]).toEqual([true, null]);
    const again = await send(path, body, key, as);
    expect([again.status, replayOf(again)]).toEqual([first.status, "true"]);
    if (secret === undefined) {
      expect(again.body).toEqual(first.body);
      return;
    }
    expect(String(first.body[secret])).toMatch(/^(sk-tg-|tg-admin-|whsec_|([0-9A-Z]{5}-){4})/);
    expect(first.body).not.toHaveProperty("hint");
    expect(again.body).toEqual({
      ...first.body,
      [secret]: null,
      hint: expect.stringMatching(/(is|are) not (stored|shown again)/),
    });
    if (first.body.id !== undefined) expect(again.body.hint).toContain(first.body.id);
    const files = readdirSync(dataDir).filter((name) => name.startsWith("tollgate.db"));
    const stored = Buffer.concat(files.map((name) => readFileSync(join(dataDir, name))));
    expect(stored.includes(key)).toBe(true);
    // That of a receiver signs what is sent, and is stored with the receiver.
    if (!path.startsWith("/receivers")) expect(stored.includes(String(first.body[secret]))).toBe(false);
  });

  test("a repeated request books once and is recorded once", async () => {
    const id = await made();
    const key = newKey();
    const path = `/organizations/${id}/grants`;
    const answers = await Promise.all(Array.from({ length: 12 }, () => send(path, { amount: 50 }, key)));
    const firsts = answers.filter((answer) => answer.status === 201 && replayOf(answer) === null);
    expect(firsts).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 201)) {
      expect(errorOf(answer)).toMatchObject({ status: 409, code: "idempotency_in_progress" });
      expect(answer.headers.get("retry-after")).toBe("1");
    }
    const again = await send(path, { amount: 50 }, key);
    expect([again.status, again.body]).toEqual([201, firsts[0]?.body]);
    expect(await availableOf(id)).toBe(50);
    const { body: audit } = await admin.call<{ data: object[] }>(
      "GET",
      `/audit?organization_id=${id}&action=credits.grant`,
    );
    expect(audit.data).toHaveLength(1);
  });

  test("a key that was used for another body, path or operation is refused", async () => {
    const [id, other] = [await made(), await made()];
    const key = newKey();
    await send(`/organizations/${id}/grants`, { amount: 1, priority: 2 }, key);
    const same = await send(`/organizations/${id}/grants`, { priority: 2, amount: 1.0 }, key);
    expect([same.status, replayOf(same)]).toEqual([201, "true"]);
    for (const [path, body] of [
      [`/organizations/${id}/grants`, { amount: 2, priority: 2 }],
      [`/organizations/${other}/grants`, { amount: 1, priority: 2 }],
      [`/organizations/${id}/revocations`, { amount: 1 }],
      ["/organizations", { name: "x" }],
    ] as const) {
      const refused = await send(path, body, key);
      expect(errorOf(refused)).toMatchObject({ status: 422, code: "idempotency_mismatch" });
    }
    expect([await availableOf(id), await availableOf(other)]).toEqual([1, 0]);
  });

  test("a refused request frees its key, so that it can be sent again", async () => {
    const id = await made();
    const key = newKey();
    const revoke = () => send(`/organizations/${id}/revocations`, { amount: 5 }, key);
    expect(errorOf(await revoke())).toMatchObject({ status: 400, param: "amount" });
    await admin.call("POST", `/organizations/${id}/grants`, { amount: 7 });
    const booked = await revoke();
    expect([booked.status, replayOf(booked)]).toEqual([201, null]);
    expect(replayOf(await revoke())).toBe("true");
    expect(await availableOf(id)).toBe(2);
  });

  test("a key needs a signed-in caller and a valid value, and the sign-in takes none", async () => {
    const keyed = { "idempotency-key": newKey() };
    const guest = new AdminClient(service, FROM_CONSOLE);
    expect((await guest.call("POST", "/playground/token", {})).status).toBe(201);
    const anonymous = await guest.call("POST", "/playground/token", {}, keyed);
    expect(errorOf(anonymous)).toMatchObject({ status: 400, code: "invalid_value", param: "Idempotency-Key" });
    const token = firstAdminToken(service);
    const refused = await guest.call("POST", "/session", { token }, keyed);
    expect(errorOf(refused)).toMatchObject({ status: 400, code: "invalid_value", param: "Idempotency-Key" });
    expect(refused.headers.get("set-cookie")).toBeNull();
    const long = await send("/organizations", { name: "x" }, "x".repeat(256));
    expect(errorOf(long)).toMatchObject({ status: 400, param: "Idempotency-Key" });
  });

  test("a script and a session of an operator share their keys; another operator and a member have others", async () => {
    const key = newKey();
    const session = await signIn(service, firstAdminToken(service));
    const first = await send("/organizations", { name: "Shared" }, key);
    const again = await send("/organizations", { name: "Shared" }, key, session);
    expect([replayOf(again), again.body]).toEqual(["true", first.body]);
    const { body } = await admin.call("POST", "/operators", { name: "Ada", role: "operator" });
    const ada = new AdminClient(service, { authorization: `Bearer ${body.secret}` });
    const others = await send("/organizations", { name: "Shared" }, key, ada);
    expect([others.status, replayOf(others)]).toEqual([201, null]);
    expect(others.body.id).not.toBe(first.body.id);
    const { secret } = await tokenOf(await made());
    const member = await send("/playground/token", {}, key, await signIn(service, secret));
    expect([member.status, replayOf(member)]).toEqual([201, null]);
  });
});

/** Changes a key's row as a crash would have left it. */
function tamper(change: string, key: string): void {
  const database = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
  database.prepare(`update admin_idempotency_key set ${change} where key = ?`).run(key);
  database.close();
}

test("a key outlives the process, and a request without a stored answer is never run again", async () => {
  const id = await made();
  const path = `/organizations/${id}/grants`;
  const [answered, running, lost] = [newKey(), newKey(), newKey()];
  const first = await send(path, { amount: 1 }, answered);
  for (const key of [running, lost]) await send(path, { amount: 1 }, key);
  // However long the restart takes, the claim of the one is young and that of the other is old.
  tamper("state = 'running', status = null, answer = null, created_at = created_at + 3600000", running);
  tamper("state = 'running', status = null, answer = null, created_at = created_at - 60001", lost);
  await service.end("SIGKILL");
  service = await startProcess({ dataDir, config: CONFIG });
  admin = new AdminClient(service, admin.headers);
  const again = await send(path, { amount: 1 }, answered);
  expect([again.status, replayOf(again), again.body]).toEqual([201, "true", first.body]);
  expect(errorOf(await send(path, { amount: 1 }, running))).toMatchObject({
    status: 409,
    code: "idempotency_in_progress",
  });
  expect(errorOf(await send(path, { amount: 1 }, lost))).toMatchObject({
    status: 409,
    code: "idempotency_interrupted",
  });
  expect(await availableOf(id)).toBe(3);
});
