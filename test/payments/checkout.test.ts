import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { Payment, PaymentTerms } from "../../src/api/admin/payment.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import { holdOf, paymentOf, randomId, releaseOf } from "../stores/fixture.ts";
import { type AdminClient, operator, signIn } from "../support/admin.ts";
import { MEMBER_SCOPES, makeOrganization, type RunningService, startService } from "../support/service.ts";
import { StripeStandIn, signatureOf, stripeSettings } from "../support/stripe.ts";

const RETURN_URL = "https://ai.example.com/credits";

interface List<Row> {
  data: Row[];
}

let stripe: StripeStandIn;
let service: RunningService;
let admin: AdminClient;
beforeAll(async () => {
  stripe = await new StripeStandIn().start();
  service = await startService({
    config: { payments: { stripe: stripeSettings(stripe.url, { automaticTax: true }) } },
  });
  admin = operator(service);
}, 180_000);
afterAll(async () => {
  await service?.end();
  await stripe?.close();
});

async function organization(): Promise<{ id: string; token: string }> {
  return makeOrganization(service, "0", { scopes: MEMBER_SCOPES });
}

const checkout = (id: string, amount: unknown, client = admin) =>
  client.call<{ id: string }>("POST", `/organizations/${id}/checkouts`, { amount, return_url: RETURN_URL });

function deliver(body: string, headers: Record<string, string> = { "stripe-signature": signatureOf(body) }) {
  const all = { "content-type": "application/json; charset=utf-8", ...headers };
  return fetch(`${service.url}/webhooks/stripe`, { method: "POST", headers: all, body });
}

test("an organization buys a package, and its credits arrive with Stripe's event", { timeout: 180_000 }, async () => {
  const { id } = await organization();
  const terms = await admin.call<PaymentTerms>("GET", `/organizations/${id}/payment-terms`);
  expect(terms.body).toMatchObject({
    offer: {
      currency: "eur",
      packages: [
        { amount: 10, credits: 100 },
        { amount: 50, credits: 600 },
      ],
      custom_amount: { minimum: 5, maximum: 500 },
      credits_per_unit: 10,
    },
    debt: 0,
  });
  const begun = await checkout(id, 50);
  expect(begun.status).toBe(201);
  expect(begun.body).toMatchObject({ organization_id: id, amount: 50, currency: "eur", credits: 600 });
  const form = Object.fromEntries(stripe.forms.at(-1) ?? []);
  expect(form).toMatchObject({
    client_reference_id: id,
    "metadata[tollgate_organization]": id,
    "payment_intent_data[metadata][tollgate_organization]": id,
    "automatic_tax[enabled]": "true",
    "line_items[0][price_data][unit_amount]": "5000",
    success_url: `${RETURN_URL}?payment=paid`,
    cancel_url: `${RETURN_URL}?payment=canceled`,
  });
  const intent = stripe.pay(begun.body.id);
  const answer = await deliver(stripe.event("checkout.session.completed", intent));
  expect([answer.status, await answer.json()]).toEqual([200, { received: true }]);
  const listed = await admin.call<List<Payment>>("GET", `/organizations/${id}/payments`);
  expect(listed.body.data).toMatchObject([{ id: intent, status: "paid", amount: 50, credits: 600, granted: 600 }]);
  stripe.refund(intent, 2_500);
  expect((await deliver(stripe.event("charge.refunded", intent))).status).toBe(200);
  const refunded = await admin.call<List<Payment>>("GET", `/organizations/${id}/payments`);
  expect(refunded.body.data).toMatchObject([{ status: "partially_refunded", refunded: 25, granted: 300, debt: 0 }]);
  const audit = await admin.call<List<{ action: string; actor: object }>>("GET", `/audit?organization_id=${id}`);
  expect(audit.body.data.map(({ action }) => action)).toEqual(
    expect.arrayContaining(["payment.checkout", "payment.book"]),
  );
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});

test("a member with a token cannot buy", {
  timeout: 180_000,
}, async () => {
  const [own, other] = [await organization(), await organization()];
  const member = await signIn(service, own.token);
  expect((await checkout(own.id, 10, member)).status).toBe(403);
  expect((await checkout(other.id, 10, member)).status).toBe(403);
});

test.each([
  ["below the range", 4.99],
  ["above the range", 500.01],
  ["with a third decimal", 10.005],
  ["of nothing", 0],
  ["that is a text", "10"],
])("an amount %s is refused before Stripe is asked", async (_what, amount) => {
  const { id } = await organization();
  const { asked } = stripe;
  expect(await checkout(id, amount)).toMatchObject({ status: 400 });
  expect(stripe.asked).toBe(asked);
});

test("a custom amount is priced by the rate, also with a decimal that no float has", async () => {
  const { id } = await organization();
  expect(await checkout(id, 12.29)).toMatchObject({ status: 201, body: { amount: 12.29, credits: 122.9 } });
  expect(stripe.forms.at(-1)?.get("line_items[0][price_data][unit_amount]")).toBe("1229");
});

test.each(["javascript:alert(1)", "https://ai.example.com/?a=1", "/credits"])(
  "the return URL %s is refused",
  async (url) => {
    const { id } = await organization();
    const body = { amount: 10, return_url: url };
    expect(await admin.call("POST", `/organizations/${id}/checkouts`, body)).toMatchObject({ status: 400 });
  },
);

test("a repeated request with its Idempotency-Key makes one session", async () => {
  const { id } = await organization();
  const made = stripe.forms.length;
  const again = () =>
    admin.call(
      "POST",
      `/organizations/${id}/checkouts`,
      { amount: 10, return_url: RETURN_URL },
      { "idempotency-key": `buy ${id}` },
    );
  const [first, second] = [await again(), await again()];
  expect(second.body).toEqual(first.body);
  expect(stripe.forms.length).toBe(made + 1);
});

test("a closed organization and the playground cannot buy, and are offered nothing", async () => {
  const { id } = await organization();
  await admin.call("POST", `/organizations/${id}/close`, { rest: "lapsed" });
  for (const closed of [id, "org_playground"]) {
    expect(await checkout(closed, 10)).toMatchObject({ status: 400 });
    const terms = await admin.call<PaymentTerms>("GET", `/organizations/${closed}/payment-terms`);
    expect(terms.body.offer).toBeNull();
  }
});

test("while Stripe fails, a checkout is refused by name, without the reason", async () => {
  const { id } = await organization();
  stripe.mode = "failing";
  const answer = await checkout(id, 10);
  stripe.mode = "ok";
  expect(answer).toMatchObject({ status: 503, body: { error: { code: "payment_provider_unavailable" } } });
  expect(JSON.stringify(answer.body)).not.toContain("down");
  expect(service.output()).toContain("StripeAPIError");
});

test.each([
  ["without a signature", "{}", {}, 400],
  ["with a wrong signature", "{}", { "stripe-signature": "t=1,v1=00" }, 400],
  ["that is too large", " ".repeat(300_000), { "stripe-signature": "t=1,v1=00" }, 413],
  ["of another type", "{}", { "content-type": "text/plain" }, 415],
])("a delivery %s is refused", async (_what, body, headers: Record<string, string>, status) => {
  expect((await deliver(body, headers)).status).toBe(status);
});

test("a signed event of another kind, and one of another product, are accepted", async () => {
  const { id } = await organization();
  const intent = stripe.pay((await checkout(id, 10)).body.id, { metadata: {} });
  expect((await deliver(stripe.event("customer.created", "pi_1"))).status).toBe(200);
  expect((await deliver(stripe.event("checkout.session.completed", intent))).status).toBe(200);
  expect(service.output()).toContain("this service did not make its session");
});

test("a command begins a payment and prints its address", { timeout: 180_000 }, async () => {
  const { id } = await organization();
  const printed = await service.tollgate("credits", "buy", "10", "--org", id, "--return-url", RETURN_URL);
  expect(printed).toMatchObject({
    organizationId: id,
    credits: 100,
    url: expect.stringContaining("checkout.stripe.test"),
  });
  expect(stripe.forms.at(-1)?.get("success_url")).toBe(`${RETURN_URL}?payment=paid`);
});

test("without a configuration, nothing can be bought and no event is taken", { timeout: 180_000 }, async () => {
  const plain = await startService();
  try {
    const client = operator(plain);
    const { id } = await makeOrganization(plain, "0");
    const terms = await client.call<PaymentTerms>("GET", `/organizations/${id}/payment-terms`);
    expect(terms.body).toMatchObject({ offer: null, debt: 0 });
    const begun = await checkout(id, 10, client);
    expect(begun).toMatchObject({
      status: 400,
      body: { error: { message: "Payments are not configured: see `payments.stripe`." } },
    });
    const answer = await fetch(`${plain.url}/webhooks/stripe`, { method: "POST", body: "{}" });
    expect(answer.status).toBe(404);
  } finally {
    await plain.end();
  }
});

test("automatic top-up is set by commands, saves a card by Stripe's event, and charges it", {
  timeout: 180_000,
}, async () => {
  const settings = stripeSettings(stripe.url);
  const own = await startService({ config: { payments: { stripe: settings }, ledger: { sweepSeconds: 1 } } });
  try {
    const { id, token } = await makeOrganization(own, "0", { scopes: MEMBER_SCOPES });
    const auto = (...words: string[]) => own.tollgate("credits", "auto", ...words, "--org", id);
    expect(await auto("show")).toMatchObject({ status: "off", threshold: null, card: null, chargedThisMonth: 0 });
    const set = await auto("set", "10", "--threshold", "50", "--monthly-maximum", "20");
    expect(set).toMatchObject({ status: "on", threshold: 50, amount: 10, monthlyMaximum: 20, currency: "eur" });
    const { id: session, url } = (await auto("card", "--return-url", RETURN_URL)) as Record<string, string>;
    expect(url).toContain("checkout.stripe.test");
    expect(Object.fromEntries(stripe.forms.at(-1) ?? [])).toMatchObject({
      ...{ mode: "setup", customer_creation: "always", "payment_method_types[0]": "card" },
      ...{ success_url: `${RETURN_URL}?card=saved`, cancel_url: `${RETURN_URL}?card=canceled` },
    });
    const body = stripe.save(session ?? "");
    const headers = { "content-type": "application/json", "stripe-signature": signatureOf(body) };
    expect((await fetch(`${own.url}/webhooks/stripe`, { method: "POST", headers, body })).status).toBe(200);
    const charged = async () => (await auto("show")).chargedThisMonth;
    await vi.waitFor(async () => expect(await charged()).toBe(10), { timeout: 60_000, interval: 200 });
    const client = operator(own);
    const listed = () => client.call<List<Payment>>("GET", `/organizations/${id}/payments`);
    const paid = { status: "paid", amount: 10, granted: 100 };
    await vi.waitFor(async () => expect((await listed()).body.data).toMatchObject([paid]), { timeout: 60_000 });
    expect(await auto("off")).toMatchObject({ status: "off", card: { brand: "visa" } });
    const audit = await client.call<List<{ action: string }>>("GET", `/audit?organization_id=${id}`);
    const actions = audit.body.data.map(({ action }) => action).filter((action) => action.startsWith("top_up."));
    expect(actions.toSorted()).toEqual(
      ["card_setup", "charge", "charge_end", "end", "save_card", "set"].map((verb) => `top_up.${verb}`),
    );
    const member = await signIn(own, token);
    expect(await member.call("GET", `/organizations/${id}/top-up`)).toMatchObject({ status: 200 });
    expect(await member.call("DELETE", `/organizations/${id}/top-up`)).toMatchObject({ status: 403 });
    expect(await own.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  } finally {
    await own.end();
  }
});

test("automatic top-up is refused with automatic taxes, without terms and for a closed organization", async () => {
  const { id } = await organization();
  const terms = { threshold: 50, amount: 10, monthly_maximum: 20 };
  const set = await admin.call("POST", `/organizations/${id}/top-up`, terms);
  expect(set).toMatchObject({ status: 400, body: { error: { message: expect.stringContaining("automaticTax") } } });
  for (const wrong of [{ ...terms, threshold: 0 }, { ...terms, amount: "10" }, { amount: 10 }, { ...terms, other: 1 }])
    expect(await admin.call("POST", `/organizations/${id}/top-up`, wrong)).toMatchObject({ status: 400 });
  expect(await admin.call("GET", "/organizations/org_none/top-up")).toMatchObject({ status: 404 });
  await admin.call("POST", `/organizations/${id}/close`, { rest: "lapsed" });
  expect(await admin.call("POST", `/organizations/${id}/top-up`, terms)).toMatchObject({ status: 400 });
});

/** Leaves a data directory with a payment that was refunded while a hold had its credits, which the hold returned since. */
async function leaveDebt(dataDir: string, organizationId: string): Promise<void> {
  const store = await openSqliteStore({ dataDir, role: "service" });
  await store.accounts.insertOrganization({
    id: organizationId,
    name: "Acme",
    kind: "standard",
    createdAtMs: Date.now(),
  });
  const payment = paymentOf(organizationId, randomId("pi"), { credits: 100n });
  const refunded = paymentOf(organizationId, payment.id, { credits: 100n, refunded: 1_000n, revision: 1 });
  const hold = holdOf(organizationId, 100n);
  for (const transition of [payment, hold, refunded, releaseOf(hold)]) {
    await store.books.apply("durable", [transition]);
  }
  expect(await store.payments.debt(organizationId)).toBe(100n);
  await store.close();
}

test("the sweep collects debts of payments, also without a configuration", { timeout: 180_000 }, async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-debts-"));
  const id = randomId("org");
  await leaveDebt(dataDir, id);
  const plain = await startService({ dataDir });
  try {
    const client = operator(plain);
    const debtOf = async () => (await client.call<PaymentTerms>("GET", `/organizations/${id}/payment-terms`)).body.debt;
    await vi.waitFor(async () => expect(await debtOf()).toBe(0), { timeout: 60_000, interval: 100 });
    const listed = await client.call<List<Payment>>("GET", `/organizations/${id}/payments`);
    expect(listed.body.data).toMatchObject([{ status: "refunded", granted: 0, debt: 0 }]);
  } finally {
    await plain.end();
    await rm(dataDir, { recursive: true });
  }
});
