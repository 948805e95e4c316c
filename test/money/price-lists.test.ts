import { writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AdminClient, operator, signIn } from "../support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { makeOrganization, type ServiceProcess, send, settledUsage, startProcess } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

const USAGE = { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 };
/** At the prices of the model: 10 tokens of input at 1,000 and one of output at 2,000 credits a million. */
const USUAL = 0.012;

// The contract of the stores (test/stores/) keeps the column of the list on each of them; prices depend on no store.
describe.each([hasPostgres ? "PostgreSQL" : "SQLite"])("%s", (store) => {
  let database: TestDatabase | undefined;
  let upstream: Upstream;
  let service: ServiceProcess;
  let admin: AdminClient;
  /** Ends the answers of the model `slow`. */
  let release: () => void;

  const configOf = (priceLists: object) => ({
    providers: [upstream.provider],
    models: ["m", "other", "slow"].map((id) => ({
      id,
      price: { input: 1_000, output: 2_000 },
      routes: [{ provider: "up", model: id === "slow" ? id : "m" }],
    })),
    aliases: { "any-*": "m" },
    priceLists,
  });
  const LISTS = {
    partners: { factor: 0.9 },
    own: {
      factor: 2,
      prices: {
        m: [
          { input: 100, output: 100 },
          { from: "2026-01-02", input: 3_000 },
          { from: "2099-01-01", output: 7 },
        ],
      },
    },
  };

  beforeAll(async () => {
    upstream = await startUpstream();
    const answer = answering({ words: ["one"], usage: USAGE });
    upstream.behave("m", answer);
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    upstream.behave("slow", async (request) => {
      await released;
      await answer(request);
    });
    if (store === "PostgreSQL") database = await createTestDatabase();
    service = await startProcess({ databaseUrl: database?.url, config: configOf(LISTS) });
    admin = operator(service);
  });
  afterAll(async () => {
    await service?.end();
    await upstream?.close();
    await database?.drop();
  });

  const ask = (token: string, model = "m", fields: object = {}) =>
    send(service, "/v1/chat/completions", token, { model, messages: [{ role: "user", content: "hello" }], ...fields });
  const change = (id: string, terms: object) => admin.call("PATCH", `/organizations/${id}`, terms);

  test.each([
    [null, "m", USUAL, null],
    ["partners", "m", 0.0108, { price_list: "partners", from: null }],
    ["partners", "any-model", 0.0108, { price_list: "partners" }],
    ["own", "m", 0.0301, { price_list: "own", from: "2026-01-02" }],
    ["own", "other", 2 * USUAL, { price_list: "own", from: null }],
  ])(
    "With the list %s, a request to %s is charged at its prices, streamed or not.",
    async (list, model, charge, tier) => {
      const { id, token } = await makeOrganization(service, "5");
      expect((await change(id, { price_list: list })).body).toMatchObject({ price_list: list });
      for (const [index, fields] of [{}, { stream: true }].entries()) {
        const answer = await ask(token, model, fields);
        expect(answer.status, await answer.text()).toBe(200);
        expect((await settledUsage(service, token)).creditsUsed).toBeCloseTo(charge * (index + 1), 6);
      }
      const { body } = await admin.call<{ data: { id: string }[] }>("GET", `/requests?organization_id=${id}`);
      const detail = await admin.call("GET", `/requests/${body.data[0]?.id}`);
      expect(detail.body).toMatchObject({ charged: charge, price_tier: tier });
      const listed = await (await send(service, `/v1/models/${model}`, token)).json();
      expect(listed).toMatchObject({ pricing_details: { input: (detail.body.prices as { input: number }).input } });
      expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
    },
  );

  test("A hold covers the prices of the list: a dearer one needs more credits.", async () => {
    const { id, token } = await makeOrganization(service, "1");
    expect((await ask(token, "other", { max_tokens: 300 })).status).toBe(200);
    await change(id, { price_list: "own" });
    await expect
      .poll(async () => (await ask(token, "other", { max_tokens: 300 })).status, { timeout: 60_000 })
      .toBe(402);
  });

  test("A request that is running keeps its prices when the list of its organization changes.", async () => {
    const { id, token } = await makeOrganization(service, "1");
    const running = ask(token, "slow", { max_tokens: 10 });
    const held = async () =>
      (await admin.call<{ credits: { held: number } }>("GET", `/organizations/${id}`)).body.credits.held;
    await expect.poll(held, { timeout: 60_000 }).toBeGreaterThan(0);
    await change(id, { price_list: "partners" });
    const seen = async () => (await (await send(service, "/v1/models/slow", token)).text()).includes('"input":900');
    await expect.poll(seen, { timeout: 60_000 }).toBe(true);
    release();
    expect((await running).status).toBe(200);
    expect((await settledUsage(service, token)).creditsUsed).toBe(USUAL);
    expect((await ask(token, "slow", { max_tokens: 10 })).status).toBe(200);
    expect((await settledUsage(service, token)).creditsUsed).toBeCloseTo(USUAL + 0.0108, 6);
  });

  test("An organization calls and sees its models only, and a member sees no note.", async () => {
    const { id, token } = await makeOrganization(service, "1", {
      scopes: ["chat.completions:write", "models:read", "console:read"],
    });
    const terms = {
      models: ["oth*"],
      note: "Pays late.\nAsk Bob.",
      contacts: ["ada@example.com"],
      external_id: `crm-${store}`,
    };
    expect((await change(id, terms)).body).toMatchObject(terms);
    const refused = await ask(token);
    expect(refused.status).toBe(403);
    expect(await refused.json()).toMatchObject({ error: { code: "model_not_allowed" } });
    expect((await ask(token, "other")).status).toBe(200);
    const listed = (await (await send(service, "/v1/models", token)).json()) as { data: { id: string }[] };
    expect(listed.data.map((model) => model.id)).toEqual(["other"]);
    const member = await signIn(service, token);
    const own = await member.call<{ data: object[] }>("GET", "/organizations");
    expect(own.body.data).toMatchObject([{ id, contacts: terms.contacts, note: null }]);
    expect((await member.call("GET", `/organizations/${id}`)).body).toMatchObject({ note: null });
    expect((await member.call<{ data: object[] }>("GET", "/models")).body.data).toMatchObject([{ id: "other" }]);
    const found = await admin.call("GET", `/organizations?external_id=crm-${store}`);
    expect(found.body).toMatchObject({ data: [{ id, note: terms.note }] });
    expect((await admin.call("GET", `/organizations?search=crm-${store}`)).body).toMatchObject({ data: [{ id }] });
    const second = await admin.call("POST", "/organizations", { name: "Second", external_id: `crm-${store}` });
    expect(second).toMatchObject({ status: 400, body: { error: { code: "invalid_value", param: "external_id" } } });
  });

  test.each([
    [{ price_list: "none" }, "price_list", "partners, own"],
    [{ models: ["m", "nothing*"] }, "models[1]", "a model of the service"],
    [{ contacts: ["ada@example.com", "nobody"] }, "contacts[1]", "a mail address"],
    [{ note: " \n " }, "note", ""],
    [{ external_id: "a b" }, "external_id", ""],
    [{ external_id: "crm-\u200b1" }, "external_id", ""],
  ])("The terms %j are refused with the field.", async (terms, param, allowed) => {
    const { id } = await makeOrganization(service, "1");
    for (const answer of [
      await change(id, terms),
      await admin.call("POST", "/organizations", { name: "New", ...terms }),
    ]) {
      expect(answer).toMatchObject({ status: 400, body: { error: { code: "invalid_value", param } } });
      expect((answer.body.error as { message: string }).message).toContain(allowed);
    }
  });

  test("A token for a model that the service does not offer is refused.", async () => {
    const { id, tokenId } = await makeOrganization(service, "1");
    for (const models of [["m", "gone"], ["any-model"], ["oth*"]]) {
      const param = `models[${models.length - 1}]`;
      const refused = { status: 400, body: { error: { code: "invalid_value", param } } };
      expect(await admin.call("POST", "/tokens", { organization_id: id, name: "t", models })).toMatchObject(refused);
      expect(await admin.call("PATCH", `/tokens/${tokenId}`, { models })).toMatchObject(refused);
    }
    expect(await admin.call("PATCH", `/tokens/${tokenId}`, { models: ["m"] })).toMatchObject({ status: 200 });
  });

  test("`config check` prints the prices of each list, and those that begin later.", async () => {
    const { prices } = await service.tollgate<{ prices: { model: string }[] }>("config", "check");
    expect(prices.filter(({ model }) => model === "m")).toMatchObject([
      { priceList: null, from: null, prices: { input: 1_000, output: 2_000 } },
      { priceList: "partners", from: null, prices: { input: 900, output: 1_800 } },
      { priceList: "own", from: "2026-01-02", prices: { input: 3_000, output: 100 } },
      { priceList: "own", from: "2099-01-01", prices: { input: 3_000, output: 7 } },
    ]);
    expect(prices).toContainEqual(expect.objectContaining({ model: "sandbox/echo", priceList: "own" }));
  });

  test("The commands create and change an organization with its terms.", async () => {
    const made = await service.tollgate<{ id: string }>(
      "org",
      "create",
      "By command",
      "--external-id",
      `c-${store}`,
      "--price-list",
      "own",
    );
    const changed = await service.tollgate(
      "org",
      "update",
      made.id,
      "--no-price-list",
      "--model",
      "m",
      "--note",
      "Seen",
    );
    expect(changed).toMatchObject({
      id: made.id,
      externalId: `c-${store}`,
      priceList: null,
      models: ["m"],
      note: "Seen",
    });
    const cleared = await service.tollgate("org", "update", made.id, "--all-models", "--no-note", "--no-external-id");
    expect(cleared).toMatchObject({ models: null, note: null, externalId: null });
  });

  // Last, because it changes the lists of the service.
  test("A reload changes the prices of a list, and a list that is gone refuses its organizations.", async () => {
    const { id, token } = await makeOrganization(service, "1");
    await change(id, { price_list: "partners" });
    const reload = async (lists: object) => {
      await writeFile(`${service.dataDir}/tollgate.yaml`, JSON.stringify(configOf(lists)));
      service.child.kill("SIGHUP");
    };
    const priceOf = async () => {
      const answer = await send(service, "/v1/models/m", token);
      const model = (await answer.json()) as { pricing_details?: { input: number } };
      return model.pricing_details?.input ?? answer.status;
    };
    await reload({ ...LISTS, partners: { factor: 0.25 } });
    await expect.poll(priceOf, { timeout: 60_000 }).toBe(250);
    expect((await ask(token)).status).toBe(200);
    expect((await settledUsage(service, token)).creditsUsed).toBe(0.003);
    await reload({ own: LISTS.own });
    await expect.poll(priceOf, { timeout: 60_000 }).toBe(500);
    const refused = await ask(token);
    expect(refused.status).toBe(500);
    expect(await refused.json()).toMatchObject({ error: { code: "internal_error" } });
    expect(service.output()).toContain(`priceLists: missing the list \\"partners\\", which ${id} has`);
    expect((await settledUsage(service, token)).creditsUsed).toBe(0.003);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });
});
