import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { firstAdminToken, operator } from "../support/admin.ts";
import { makeOrganization, makeToken, type RunningService, send, startService } from "../support/service.ts";

let service: RunningService;
beforeAll(async () => {
  service = await startService({ config: {} });
});
afterAll(() => service?.end());

const admin = () => operator(service);
const CHAT = "/v1/chat/completions";
const story = (rest: object = {}) => {
  const messages = [{ role: "user", content: "tell me a story" }];
  return { model: "sandbox/story", messages, max_tokens: 50, ...rest };
};
const ask = (token: string, rest: object = {}, path = CHAT) => send(service, path, token, story(rest));

interface Failure {
  error: Record<string, unknown> & { code: string };
}
const errorOf = async (answer: Response) => ((await answer.json()) as Failure).error;
const costOf = async (answer: Response) => {
  expect(answer.status).toBe(200);
  return ((await answer.json()) as { usage: { cost: number } }).usage.cost;
};

/** Returns what a request is charged, and what it needs to be admitted. */
async function amountsOf(organizationId: string, token: string): Promise<{ cost: number; need: number }> {
  const cost = await costOf(await ask(token));
  const { id } = await makeBudget(organizationId, { amount: 0.000001 });
  const { credits_required: need } = await errorOf(await ask(token));
  await admin().call("DELETE", `/organizations/${organizationId}/budgets/${id}`);
  return { cost, need: Number(need) };
}

const rounded = (credits: number) => Number(credits.toFixed(6));

async function makeBudget(organizationId: string, terms: object) {
  const draft = { name: "Team red", window: "day", amount: 1, ...terms };
  const { status, body } = await admin().call("POST", `/organizations/${organizationId}/budgets`, draft);
  expect([status, body.error]).toEqual([201, undefined]);
  return body as Record<string, unknown> & { id: string };
}

const showBudget = async (organizationId: string, id: string) =>
  (await admin().call("GET", `/organizations/${organizationId}/budgets/${id}`)).body as Record<string, unknown>;

test("a budget refuses what it does not cover, says so, and is changed, raised and deleted", async () => {
  const { id, token } = await makeOrganization(service, "100");
  const { cost, need } = await amountsOf(id, token);
  const budget = await makeBudget(id, { amount: rounded(need + cost / 2) });
  expect(budget).toMatchObject({ object: "budget", selector: { tokens: null }, each: null, by_callers_word: false });
  const first = await ask(token);
  expect(first.headers.get("x-budget-limit")).toBe(String(budget.amount));
  expect(Number(first.headers.get("x-budget-remaining"))).toBeLessThan(Number(budget.amount));
  expect(new Date(String(first.headers.get("x-budget-reset"))).getTime()).toBeGreaterThan(Date.now());
  expect(await costOf(first)).toBe(cost);
  const refused = await ask(token);
  expect([refused.status, refused.headers.get("x-should-retry")]).toEqual([402, "false"]);
  expect(refused.headers.get("x-budget-warning")).toBeNull();
  const error = await errorOf(refused);
  const { name, window, amount } = budget;
  expect(error).toMatchObject({
    ...{ code: "budget_exhausted", type: "insufficient_quota", limit_source: "budget" },
    budget: { id: budget.id, name, window, amount },
    resets_at: first.headers.get("x-budget-reset"),
  });
  expect(error.budget_remaining).toBeCloseTo(Number(amount) - cost, 6);
  expect(error.affordable_max_tokens).toBeGreaterThan(0);
  // The bound that the error names is covered, and so is a request without one.
  const short = await ask(token, { max_tokens: error.affordable_max_tokens });
  expect(short.status).toBe(200);
  expect(short.headers.get("x-budget-warning")).toMatch(/^\d+% of the budget/);

  const path = `/organizations/${id}/budgets/${budget.id}`;
  const raised = await admin().call("POST", `${path}/raises`, { amount: need });
  expect(raised).toMatchObject({ status: 201, body: { value: null, limit: rounded(Number(amount) + need) } });
  expect((await ask(token)).status).toBe(200);
  for (let status = 200; status !== 402; ) ({ status } = await ask(token));
  const changed = await admin().call("PATCH", path, { amount: 50, name: "Team blue" });
  expect(changed).toMatchObject({ status: 200, body: { name: "Team blue", amount: 50 } });
  expect(await costOf(await ask(token))).toBe(cost);
  expect((await admin().call("PATCH", path, { amount: 0.000001 })).status).toBe(200);
  expect((await ask(token)).status).toBe(402);
  expect((await admin().call("DELETE", path)).status).toBe(204);
  expect((await ask(token)).status).toBe(200);
  expect((await admin().call("GET", path)).status).toBe(404);
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  const audit = await admin().call("GET", `/audit?organization_id=${id}`);
  const actions = (audit.body.data as { action: string }[]).map(({ action }) => action);
  const made = ["budget.change", "budget.create", "budget.delete", "budget.raise"];
  expect([...new Set(actions.filter((action) => action.startsWith("budget.")))].sort()).toEqual(made);
});

test("every value of a metadata key has the amount for itself, and a request without one counts as (none)", async () => {
  const { id, token } = await makeOrganization(service, "100");
  const { cost, need } = await amountsOf(id, token);
  const amount = rounded(need + cost / 2);
  const budget = await makeBudget(id, { each: "metadata.user", window: "week", amount });
  expect(budget).toMatchObject({ by_callers_word: true, current: null });
  for (const rest of [{ user: "ada" }, { metadata: { user: "bob" } }, { safety_identifier: "eve" }, {}]) {
    expect((await ask(token, rest)).status).toBe(200);
    expect((await ask(token, rest)).status).toBe(402);
  }
  const raise = (body: object) => admin().call("POST", `/organizations/${id}/budgets/${budget.id}/raises`, body);
  expect((await raise({ amount: need, value: "bob" })).status).toBe(201);
  expect(await raise({ amount: need })).toMatchObject({ status: 400, body: { error: { param: "value" } } });
  expect((await ask(token, { user: "bob" })).status).toBe(200);
  expect((await ask(token, { user: "ada" })).status).toBe(402);
  const { counters } = await showBudget(id, budget.id);
  const shown = (counters as { data: { value: string; spent: number }[] }).data;
  expect(shown.map(({ value }) => value)).toEqual(["(none)", "ada", "bob", "eve"]);
  expect(shown[2]?.spent).toBeCloseTo(cost * 2, 6);
});

test("a selector of tokens follows rotations, and one of models and metadata covers only these", async () => {
  const { id, token, tokenId } = await makeOrganization(service, "100");
  const other = await makeToken(service, id);
  const { cost, need } = await amountsOf(id, token);
  const amount = rounded(need + cost / 2);
  const selector = { tokens: [tokenId], models: ["sandbox/st*"], metadata: { team: ["red", "blue"] } };
  await makeBudget(id, { selector, window: "lifetime", amount });
  const red = { metadata: { team: "red" } };
  const rotated = await admin().call("POST", `/tokens/${tokenId}/rotate`, {});
  const successor = String((rotated.body as { secret: string }).secret);
  expect((await ask(token, red)).status).toBe(200);
  const refused = await ask(successor, { metadata: { team: "blue" } });
  expect([refused.status, (await errorOf(refused)).resets_at]).toEqual([402, null]);
  expect((await ask(successor, { metadata: { team: "green" } })).status).toBe(200);
  expect((await ask(successor, { ...red, model: "sandbox/echo" })).status).toBe(200);
  expect((await ask(other.token, red)).status).toBe(200);
});

describe("the wires", () => {
  test("Messages answers an exhausted budget with billing_error, Responses in its own form", async () => {
    const { id, token } = await makeOrganization(service, "100");
    await makeBudget(id, { amount: 0.000001 });
    const message = await send(service, "/v1/messages", token, story());
    expect([message.status, (await message.json()) as object]).toMatchObject([
      402,
      { type: "error", error: { type: "billing_error", details: { error_code: "budget_exhausted" } } },
    ]);
    const response = await send(service, "/v1/responses", token, { model: "sandbox/story", input: "hello" });
    expect([response.status, (await errorOf(response)).code]).toEqual([402, "budget_exhausted"]);
  });

  test("Gemini's API names an exhausted budget in the details, whose values are texts", async () => {
    const { id, token } = await makeOrganization(service, "100");
    await makeBudget(id, { amount: 0.000001 });
    const body = { contents: [{ role: "user", parts: [{ text: "hello" }] }] };
    const answer = await send(service, "/v1beta/models/sandbox/story:generateContent", token, body);
    const { details } = (await errorOf(answer)) as unknown as {
      details: { reason: string; metadata: { budget: string } }[];
    };
    expect([answer.status, details[0]?.reason]).toEqual([402, "budget_exhausted"]);
    expect(JSON.parse(details[0]?.metadata.budget ?? "")).toMatchObject({ name: "Team red", amount: 0.000001 });
  });

  test("a request without max_tokens gets as long an answer as its budget covers", async () => {
    const { id, token } = await makeOrganization(service, "100");
    const cost = await costOf(await ask(token, { max_tokens: 1_000 }));
    await makeBudget(id, { amount: Number(cost.toFixed(6)) });
    const answer = await ask(token, { max_tokens: undefined });
    const shortened = Number(answer.headers.get("x-tollgate-max-tokens"));
    expect(shortened).toBeGreaterThan(0);
    expect(await costOf(answer)).toBeLessThanOrEqual(cost);
  });

  test("usage has the budgets of the token and what it can spend", async () => {
    const { id, token } = await makeOrganization(service, "100");
    await makeBudget(id, { amount: 7 });
    await makeBudget(id, { amount: 3, selector: { models: ["sandbox/echo"] } });
    await makeBudget(id, { amount: 5, each: "token", window: "month" });
    await makeBudget(id, { amount: 1, each: "metadata.user" });
    const usage = (await (await send(service, "/v1/usage", token)).json()) as Record<string, unknown>;
    expect(usage).toMatchObject({ creditsAvailable: 100, creditsSpendable: 5 });
    const listed = usage.budgets as { limit: number; coversAll: boolean }[];
    expect(listed.map(({ limit, coversAll }) => [limit, coversAll]).sort()).toEqual([
      [3, false],
      [5, true],
      [7, true],
    ]);
  });
});

test("of 500 concurrent requests, a budget worth 20 is never passed, and admits all that fits", async () => {
  const { id, token } = await makeOrganization(service, "1000");
  const { need } = await amountsOf(id, token);
  const amount = rounded(need * 20);
  const budget = await makeBudget(id, { amount, window: "lifetime" });
  let left = 500;
  const held: number[] = [];
  const client = async () => {
    for (left -= 1; left >= 0; left -= 1) {
      const answer = await ask(token);
      held.push(answer.status);
      await answer.arrayBuffer();
    }
  };
  await Promise.all(Array.from({ length: 100 }, client));
  expect(held.filter((status) => ![200, 402, 429].includes(status))).toEqual([]);
  expect(held).toContain(200);
  expect(held.length).toBe(500);
  // Requests that fit are admitted after all others have ended.
  for (let status = 200; status === 200; ) ({ status } = await ask(token));
  const { current } = await showBudget(id, budget.id);
  const { spent, held: holds, remaining } = current as Record<string, number>;
  expect(holds).toBe(0);
  expect(spent).toBeLessThanOrEqual(amount);
  expect(remaining).toBeLessThan(need);
});

test("the cap of a token is a budget of the list, which is changed with the token only", async () => {
  const { id, tokenId } = await makeOrganization(service, "10");
  await admin().call("PATCH", `/tokens/${tokenId}`, { cap: 4 });
  const { body } = await admin().call("GET", `/organizations/${id}/budgets`);
  const [cap] = body.data as { id: string }[];
  expect(body.data).toMatchObject([
    { cap_of: tokenId, amount: 4, window: "lifetime", selector: { tokens: [tokenId] } },
  ]);
  const path = `/organizations/${id}/budgets/${cap?.id}`;
  for (const [method, rest, change] of [
    ["PATCH", "", { amount: 9 }],
    ["DELETE", "", undefined],
    ["POST", "/raises", { amount: 1 }],
  ] as const) {
    const answer = await admin().call(method, `${path}${rest}`, change);
    expect(answer).toMatchObject({ status: 400, body: { error: { code: "invalid_value" } } });
  }
  await admin().call("PATCH", `/tokens/${tokenId}`, { cap: null });
  expect((await admin().call("GET", `/organizations/${id}/budgets`)).body.data).toEqual([]);
});

test("a cap is listed and changed with the successor of a rotated token", async () => {
  const { id, token, tokenId } = await makeOrganization(service, "10");
  await admin().call("PATCH", `/tokens/${tokenId}`, { cap: 4 });
  const rotated = (await admin().call("POST", `/tokens/${tokenId}/rotate`, {})).body as { id: string; secret: string };
  // A second rotation replaces the unused successor, which keeps no successor of its own.
  const again = (await admin().call("POST", `/tokens/${tokenId}/rotate`, { replace: true })).body as {
    id: string;
    secret: string;
  };
  expect(again.id).not.toBe(rotated.id);
  const budgets = `/organizations/${id}/budgets`;
  const listed = (await admin().call("GET", budgets)).body.data as { id: string; cap_of: string }[];
  expect(listed).toMatchObject([{ cap_of: again.id, selector: { tokens: [tokenId] } }]);
  const refused = await admin().call("PATCH", `${budgets}/${listed[0]?.id}`, { amount: 9 });
  expect((refused.body.error as { message: string }).message).toContain(`/tokens/${again.id} `);
  expect(await admin().call("PATCH", `/tokens/${again.id}`, { cap: 5 })).toMatchObject({
    ...{ status: 200, body: { caller_id: tokenId, cap: { amount: 5 } } },
  });
  expect((await ask(again.secret)).status).toBe(200);
  expect((await ask(token)).status).toBe(200);
  const { body } = await admin().call("GET", `/organizations/${id}/statement?kind=charge`);
  const cap = { id: listed[0]?.id, name: "Spending cap", begins_at: null, value: null };
  expect(body.data).toMatchObject([
    { token_id: again.id, budgets: [cap] },
    { token_id: tokenId, budgets: [cap] },
  ]);
});

test("the statement names the budgets of each charge and refund, with their windows and values", async () => {
  const { id, token } = await makeOrganization(service, "100");
  const users = await makeBudget(id, { name: "Users", each: "metadata.user", window: "month" });
  const gone = await makeBudget(id, { name: "Gone" });
  const none = await makeBudget(id, { name: "Others", selector: { models: ["sandbox/echo"] } });
  expect((await ask(token, { user: "ada" })).status).toBe(200);
  const statement = `/organizations/${id}/statement`;
  const charged = (await admin().call("GET", `${statement}?kind=charge`)).body.data as { id: string }[];
  const refund = { request_id: charged[0]?.id, amount: 0.000001 };
  expect(await admin().call("POST", `/organizations/${id}/credits`, refund)).toMatchObject({ status: 201 });
  await admin().call("DELETE", `/organizations/${id}/budgets/${gone.id}`);
  await admin().call("PATCH", `/organizations/${id}/budgets/${users.id}`, { name: "People" });
  const month = `${new Date().toISOString().slice(0, 7)}-01T00:00:00.000Z`;
  const people = { id: users.id, name: "People", begins_at: month, value: "ada" };
  const day = `${new Date().toISOString().slice(0, 10)}T00:00:00.000Z`;
  const deleted = { id: gone.id, name: null, begins_at: day, value: null };
  const entries = (await admin().call("GET", statement)).body.data as { kind: string; budgets: { id: string }[] }[];
  const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1);
  const shown = entries.map(({ kind, budgets }) => [kind, budgets.toSorted(byId)]);
  const both = [people, deleted].sort(byId);
  expect(shown).toEqual([
    ["grant", []],
    ["charge", both],
    ["credit", both],
  ]);
  expect(JSON.stringify(entries)).not.toContain(none.id);
  const csv = (await admin().call<string>("GET", `${statement}.csv`)).body.split("\r\n");
  expect(csv[0]).toContain(",budgets,");
  expect(csv[2]).toContain(JSON.stringify(people).replaceAll('"', '""'));
  const printed = await service.tollgate<{ entries: object[] }>("credits", "statement", "--org", id);
  expect(printed.entries[1]).toMatchObject({ budgets: expect.arrayContaining([people, deleted]) });
});

test("a budget is marked as by the caller's word exactly while a covered token does not pin its keys", async () => {
  const { id, tokenId } = await makeOrganization(service, "10", { pinned: { team: "red", user: "ada" } });
  const made = async (terms: object) => {
    const budget = await makeBudget(id, terms);
    return async () => (await showBudget(id, budget.id)).by_callers_word;
  };
  const marks = [
    await made({ each: "metadata.user" }),
    await made({ selector: { metadata: { team: ["red"] } }, each: "metadata.user" }),
    await made({ selector: { metadata: { Team: ["red"] } } }),
    await made({ selector: { tokens: [tokenId] }, each: "metadata.user" }),
    await made({ each: "token" }),
  ];
  const marked = () => Promise.all(marks.map((mark) => mark()));
  expect(await marked()).toEqual([false, false, true, false, false]);
  // It sends no requests to models.
  await makeToken(service, id, { scopes: ["usage:read"] });
  expect(await marked()).toEqual([false, false, true, false, false]);
  const half = await makeToken(service, id, { pinned: { user: "bob" } });
  expect(await marked()).toEqual([false, true, true, false, false]);
  const free = await makeToken(service, id);
  expect(await marked()).toEqual([true, true, true, false, false]);
  await admin().call("POST", `/tokens/${free.tokenId}/revoke`);
  await admin().call("PATCH", `/tokens/${half.tokenId}`, { pinned: { user: "bob", team: "blue" } });
  expect(await marked()).toEqual([false, false, true, false, false]);
  await admin().call("PATCH", `/tokens/${tokenId}`, { pinned: { team: 'x","user":"y' } });
  expect(await marked()).toEqual([true, true, true, true, false]);
});

test.each([
  [{ amount: -1 }, "amount"],
  [{ amount: 1e12 }, "amount"],
  [{ amount: 0.0000001 }, "amount"],
  [{ window: "hour" }, "window"],
  [{ each: "user" }, "each"],
  [{ colour: "red" }, "colour"],
  [{ selector: { tokens: ["tok_unknown"] } }, "selector.tokens[0]"],
  [{ selector: { tokens: [] } }, "selector.tokens"],
  [{ selector: { models: ["no-such-model"] } }, "selector.models[0]"],
  [{ selector: { models: ["a*b"] } }, "selector.models[0]"],
  [{ selector: { metadata: {} } }, "selector.metadata"],
  [{ selector: { metadata: { team: [] } } }, "selector.metadata.team"],
  [{ selector: { metadata: { "": 5 } } }, "selector.metadata"],
  [{ selector: { metadata: { ["k".repeat(65)]: ["a"] } } }, "selector.metadata"],
  [{ selector: { metadata: { "a\nb": { c: 1 } } } }, "selector.metadata"],
])("a budget with %j is refused at %s", async (terms, param) => {
  const { id } = await makeOrganization(service, "1");
  const draft = { name: "x", window: "day", amount: 1, ...terms };
  const { status, body } = await admin().call("POST", `/organizations/${id}/budgets`, draft);
  expect([status, (body.error as { param: string }).param]).toEqual([400, param]);
});

test("commands create, list, show, update, raise and delete budgets", async () => {
  const { id } = await makeOrganization(service, "10");
  const run = <T = Record<string, unknown> & { id: string }>(...words: string[]) =>
    service.tollgate<T>("budget", ...words, "--org", id);
  const namesOf = async () => (await run<{ name: string }[]>("list")).map(({ name }) => name);
  const made = await run("create", "--name", "Users", "--amount", "2", "--each", "metadata.user", "--window", "day");
  expect(made).toMatchObject({ name: "Users", amount: 2, each: "metadata.user", byCallersWord: true });
  await run("create", "--name", "Red", "--amount", "3", "--metadata", "team=red", "team=blue");
  expect(await namesOf()).toEqual(["Users", "Red"]);
  expect(await run("update", made.id, "--amount", "4")).toMatchObject({ amount: 4 });
  expect(await run("raise", made.id, "6", "--value", "ada")).toMatchObject({ value: "ada", limit: 10 });
  expect(await run("show", made.id)).toMatchObject({ counters: [{ value: "ada", limit: 10, spent: 0 }] });
  await run("delete", made.id);
  expect(await namesOf()).toEqual(["Red"]);
});

test("the example of docs/budgets.md creates its budget", async () => {
  const page = await readFile(new URL("../../docs/budgets.md", import.meta.url), "utf8");
  const [, example = ""] = /```sh\n(curl [^`]*)```/.exec(page) ?? [];
  const { id, token } = await makeOrganization(service, "10");
  const variables = { URL: service.url, ORGANIZATION: id, ADMIN_TOKEN: firstAdminToken(service) };
  const { stdout } = await promisify(execFile)("sh", ["-c", example], { env: { ...process.env, ...variables } });
  expect(JSON.parse(stdout)).toMatchObject({ object: "budget", each: "metadata.user", window: "day", amount: 2 });
  const answer = await ask(token, { user: "ada" });
  expect(answer.headers.get("x-budget-limit")).toBe("2");
});

test("a token begins only so many values in a minute, and goes on with those that are counted", async () => {
  const small = await startService({ config: { limits: { newValuesPerMinute: 2 } } });
  try {
    const { id, token } = await makeOrganization(small, "100");
    const draft = { name: "Users", each: "metadata.user", window: "day", amount: 1 };
    const { status } = await operator(small).call("POST", `/organizations/${id}/budgets`, draft);
    expect(status).toBe(201);
    const askAs = (user: string) => send(small, CHAT, token, story({ user }));
    for (const user of ["ada", "ben", "ada"]) expect((await askAs(user)).status).toBe(200);
    const refused = await askAs("eve");
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await errorOf(refused)).toMatchObject({ code: "rate_limit_exceeded", budget: { name: "Users" } });
    expect((await askAs("ben")).status).toBe(200);
  } finally {
    await small.end();
  }
});
