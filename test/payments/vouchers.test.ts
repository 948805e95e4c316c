import { afterAll, beforeAll, expect, test } from "vitest";
import type { Booking } from "../../src/api/admin/credits.ts";
import type { Voucher, VoucherBatch } from "../../src/api/admin/voucher.ts";
import { AdminClient, operator, signIn } from "../support/admin.ts";
import { AUDIENCE, type Issuer, startIssuer } from "../support/issuer.ts";
import { MEMBER_SCOPES, makeOrganization, type RunningService, startService } from "../support/service.ts";

interface List<Row> {
  data: Row[];
}
type Made = VoucherBatch & { codes: string[] };
interface Refusal {
  error: { code: string; param: string | null; message: string };
}

const LONG = { timeout: 180_000 };

let service: RunningService;
let issuer: Issuer;
let admin: AdminClient;
beforeAll(async () => {
  issuer = await startIssuer();
  const roles = [{ when: { role: "owner" }, role: "owner", organization: { claim: "organization" } }];
  service = await startService({
    config: { identity: { issuers: [{ issuer: issuer.url, audience: AUDIENCE, roles }] } },
  });
  admin = operator(service);
}, 180_000);
afterAll(async () => {
  await service?.end();
  await issuer?.close();
});

/** Creates an organization, and signs in as its owner. */
async function organization(): Promise<{ id: string; owner: AdminClient }> {
  const { id } = await makeOrganization(service, "0", { scopes: MEMBER_SCOPES });
  const token = await issuer.token({ sub: `owner of ${id}`, role: "owner", organization: id });
  return { id, owner: new AdminClient(service, { authorization: `Bearer ${token}` }) };
}

async function vouchers(terms: object = {}): Promise<Made> {
  const made = await admin.call<Made>("POST", "/voucher-batches", { name: "Trial", count: 2, amount: 25, ...terms });
  expect(made.status, JSON.stringify(made.body)).toBe(201);
  return made.body;
}

const redeem = <Body = Booking>(id: string, code: unknown, client = admin) =>
  client.call<Body>("POST", `/organizations/${id}/redemptions`, { code });
const refusalOf = async (id: string, code: unknown, client = admin) => {
  const { status, body } = await redeem<Refusal>(id, code, client);
  return { status, code: body.error?.code, param: body.error?.param };
};

test("an owner redeems a code once, as people type it, and its state is shown to operators", LONG, async () => {
  const [first, second] = [await organization(), await organization()];
  const made = await vouchers({ credit_days: 30, priority: 5 });
  expect(made).toMatchObject({ object: "voucher_batch", name: "Trial", count: 2, amount: 25, redeemed: 0, revoked: 0 });
  const [code = "", other = ""] = made.codes;
  expect(code).toMatch(/^([0-9A-HJKMNP-TV-Z]{5}-){4}[0-9A-HJKMNP-TV-Z]{5}$/);
  const typed = ` ${code.toLowerCase().replaceAll("-", " ").replaceAll("0", "o").replaceAll("1", "l")} `;
  const booked = await redeem(first.id, typed, first.owner);
  expect([booked.status, booked.body]).toMatchObject([201, { object: "booking", amount: 25, repeated: false }]);
  const again = await redeem(first.id, code, first.owner);
  expect([again.status, again.body]).toMatchObject([
    200,
    { id: booked.body.id, repeated: true, credits: { total: 25 } },
  ]);
  expect(await refusalOf(second.id, code, second.owner)).toMatchObject({ status: 409, code: "voucher_ended" });
  const { body: grants } = await admin.call<List<Record<string, unknown>>>("GET", `/organizations/${first.id}/grants`);
  const path = `/voucher-batches/${made.id}`;
  const { body: listed } = await admin.call<List<Voucher>>("GET", `${path}/vouchers`);
  const redeemed = listed.data.find(({ status }) => status === "redeemed");
  expect(redeemed).toMatchObject({ prefix: code.slice(0, 5), organization_id: first.id });
  expect(grants.data).toMatchObject([{ id: booked.body.id, amount: 25, priority: 5, reference: redeemed?.id }]);
  const expiry = Date.parse(String(grants.data[0]?.expires_at)) - Date.parse(String(redeemed?.redeemed_at));
  expect(expiry).toBe(30 * 86_400_000);
  const revoked = await admin.call("POST", `${path}/revoke`);
  expect(revoked.body).toMatchObject({ count: 2, redeemed: 1, revoked: 1, expired: 0 });
  expect((await admin.call("POST", `${path}/revoke`)).body).toEqual(revoked.body);
  expect(await refusalOf(second.id, other)).toMatchObject({ status: 409, code: "voucher_ended", param: "code" });
  expect((await admin.call<List<VoucherBatch>>("GET", "/voucher-batches")).body.data).toContainEqual(revoked.body);
  const { body: audit } = await admin.call<List<object>>("GET", `/audit?subject_id=${booked.body.id}`);
  const after = { amount: 25, voucher_id: redeemed?.id, batch_id: made.id };
  expect(audit.data).toMatchObject([{ action: "voucher.redeem", actor: { kind: "owner" }, after }]);
  expect(JSON.stringify([listed, audit, grants])).not.toContain(code.slice(6));
  // Owners read the audit log of their organization, and the name is for operators.
  expect(JSON.stringify(audit)).not.toContain("Trial");
});

test("unknown codes, closed organizations and other roles are refused", LONG, async () => {
  const { id, owner } = await organization();
  const { codes } = await vouchers();
  for (const code of [
    "abc",
    "7K3QX-7K3QX-7K3QX-7K3QX-7K3QX",
    "7K3QX-7K3QX-7K3QX-7K3QX-7K3Q!",
    "UUUUU".repeat(5),
    "💳",
  ]) {
    expect(await refusalOf(id, code)).toEqual({ status: 400, code: "invalid_value", param: "code" });
  }
  expect(await refusalOf(id, 5)).toMatchObject({ status: 400, code: "invalid_type" });
  expect(await refusalOf(id, "")).toMatchObject({ status: 400, param: "code" });
  expect((await redeem("org_none", codes[0])).status).toBe(404);
  expect(await refusalOf("org_playground", codes[0])).toMatchObject({ status: 400, code: "invalid_value" });
  const { id: other, token } = await makeOrganization(service, "0", { scopes: MEMBER_SCOPES });
  expect((await redeem(other, codes[0], owner)).status).toBe(404);
  expect((await redeem(other, codes[0], await signIn(service, token))).status).toBe(403);
  await admin.call("POST", `/organizations/${other}/close`, { rest: "lapsed" });
  expect(await refusalOf(other, codes[0])).toMatchObject({ status: 400, code: "invalid_value" });
  expect((await redeem(id, codes[0], owner)).status).toBe(201);
});

test("the eleventh code that an organization tries in a minute is refused, also the right one", LONG, async () => {
  const { id, owner } = await organization();
  const { codes } = await vouchers();
  for (let tries = 0; tries < 10; tries += 1) expect((await refusalOf(id, `wrong ${tries}`, owner)).status).toBe(400);
  const { status, body } = await redeem<Refusal>(id, codes[0], owner);
  expect([status, body.error.message]).toEqual([
    429,
    expect.stringContaining("this organization's vouchers: limit 10"),
  ]);
  expect((await redeem(id, codes[0])).status).toBe(201);
});

test("the eleventh change of its automatic top-up in a minute is refused to an organization", LONG, async () => {
  const { id, owner } = await organization();
  const terms = { threshold: 1, amount: 10, monthly_maximum: 10 };
  const set = () => owner.call<Refusal>("POST", `/organizations/${id}/top-up`, terms);
  for (let tries = 0; tries < 10; tries += 1) expect((await set()).status).toBe(400);
  const { status, body } = await set();
  const message = expect.stringContaining("this organization's automatic top-up: limit 10");
  expect([status, body.error.message]).toEqual([429, message]);
});

test("a batch is refused with a wrong count, amount, time, name or number of days", LONG, async () => {
  const whole = { name: "Trial", count: 2, amount: 25 };
  const wrong: [string, object][] = [
    ...[0, 1_001, 1.5, "2"].map((count) => ["count", { ...whole, count }] as [string, object]),
    ...[0, -1, 1e10, 0.0000001].map((amount) => ["amount", { ...whole, amount }] as [string, object]),
    ["expires_at", { ...whole, expires_at: "2020-01-01T00:00:00Z" }],
    ["expires_at", { ...whole, expires_at: "soon" }],
    ["credit_days", { ...whole, credit_days: 0 }],
    ["priority", { ...whole, priority: -1 }],
    ["name", { ...whole, name: " " }],
    ["name", { count: 2, amount: 25 }],
    ["codes", { ...whole, codes: ["mine"] }],
  ];
  for (const [param, body] of wrong) {
    const answer = await admin.call<Refusal>("POST", "/voucher-batches", body);
    expect([body, answer.status, answer.body.error?.param]).toEqual([body, 400, param]);
  }
  expect((await admin.call("GET", "/voucher-batches/none/vouchers")).status).toBe(404);
  expect((await admin.call("POST", "/voucher-batches/none/revoke")).status).toBe(404);
});

test("the largest batch has different codes, all of which are listed", LONG, async () => {
  const { id, codes } = await vouchers({ count: 1_000 });
  expect(new Set(codes).size).toBe(1_000);
  const listed = await service.tollgate<{ status: string }[]>("voucher", "show", id);
  expect(listed.filter(({ status }) => status === "active")).toHaveLength(1_000);
});

test("commands create, list, redeem and revoke vouchers", LONG, async () => {
  const { id } = await organization();
  const create = ["voucher", "create", "2.5", "--name", "=Reseller", "--count", "2", "--expires", "2999-01-01"];
  const { id: batch, codes } = await service.tollgate<{ id: string; codes: string[] }>(...create);
  const [code = ""] = codes;
  const redeemed = await service.tollgate<{ id: string }>("voucher", "redeem", code, "--org", id);
  expect(redeemed).toMatchObject({ amount: 2.5, repeated: false, creditsAvailable: 2.5 });
  expect(await service.tollgate("voucher", "list")).toContainEqual(
    expect.objectContaining({
      id: batch,
      name: "=Reseller",
      count: 2,
      redeemed: 1,
      expiresAt: "2999-01-01T00:00:00.000Z",
    }),
  );
  expect(await service.tollgate("voucher", "revoke", batch)).toMatchObject({ revoked: 1 });
  await expect(service.tollgate("voucher", "redeem", codes[1] ?? "", "--org", id)).rejects.toThrow("was revoked");
  await expect(service.tollgate("voucher", "redeem", "abc", "--org", id)).rejects.toThrow("there is no such voucher");
  await expect(service.tollgate("voucher", "create", "1", "--name", "n", "--count", "1001")).rejects.toThrow("--count");
  const { ok } = await service.tollgate<{ ok: boolean }>("ledger", "verify");
  expect(ok).toBe(true);
});
