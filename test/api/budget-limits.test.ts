import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";

interface Failure {
  error: { code: string; message: string; param: string | null } & Record<string, unknown>;
}
interface Budget extends Record<string, unknown> {
  id: string;
}

describe("limits of budgets", () => {
  let service: RunningService;
  beforeAll(async () => {
    service = await startService({ config: {} });
  });
  afterAll(() => service?.end());

  const admin = () => operator(service);
  const pathOf = (organizationId: string, id = "") =>
    `/organizations/${organizationId}/budgets/${id}`.replace(/\/$/, "");
  const make = async (organizationId: string, terms: object) => {
    const { status, body } = await admin().call<Budget>("POST", pathOf(organizationId), { name: "Users", ...terms });
    expect([status, body.error]).toEqual([201, undefined]);
    return body;
  };
  const ask = (token: string, rest: object = {}, signal?: AbortSignal) => {
    const messages = [{ role: "user", content: "hello" }];
    const body = { model: "sandbox/echo", messages, max_tokens: 10, ...rest };
    return send(service, "/v1/chat/completions", token, body, { signal: signal ?? null });
  };
  const errorOf = async (answer: Response) => ((await answer.json()) as Failure).error;
  /** Returns the status of a request once it is another one than before: a change is in force within a second. */
  const until = (status: number, token: string, rest: object = {}) =>
    expect.poll(async () => (await ask(token, rest)).status, { timeout: 60_000 }).toBe(status);

  test("each value has the requests per minute for itself, and a refusal names the budget and the value", async () => {
    const { id, token } = await makeOrganization(service, "100");
    const budget = await make(id, { each: "metadata.user", limits: { requests_per_minute: 2 } });
    expect(budget).toMatchObject({ amount: null, limits: { requests_per_minute: 2 }, current: null, window: "month" });
    expect(budget).toMatchObject({ each: "metadata.user", by_callers_word: true });
    const answers = [await ask(token, { user: "ada" }), await ask(token, { metadata: { user: "ada" } })];
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expect(answers.map(({ headers }) => headers.get("x-ratelimit-remaining-requests"))).toEqual(["1", "0"]);
    expect(answers[1]?.headers.get("x-ratelimit-limit-requests")).toBe("2");
    expect(answers[1]?.headers.get("x-budget-limit")).toBeNull();
    const refused = await ask(token, { user: "ada" });
    expect(refused.status).toBe(429);
    expect(refused.headers.get("ratelimit")).toMatch(/^"requests";r=0;t=\d+$/);
    expect(refused.headers.get("ratelimit-policy")).toBe('"requests";q=2;w=60');
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    const error = await errorOf(refused);
    expect(error).toMatchObject({
      ...{ code: "rate_limit_exceeded", limit_source: "budget" },
      budget: { id: budget.id, name: "Users", each: "metadata.user", value: "ada" },
    });
    expect(error.message).toMatch(
      /^Rate limit reached for requests per minute of the budget "Users" for this value of user: limit 2\. Try again/,
    );
    for (const rest of [{ user: "bob" }, {}]) expect((await ask(token, rest)).status).toBe(200);
    // It counts no credits: nobody is refused for them, and no value has a counter.
    const { counters } = (await admin().call(`GET`, pathOf(id, budget.id))).body;
    expect(counters).toMatchObject({ data: [] });
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });

  test("all wires refuse with the budget, in their own forms", async () => {
    const { id, token } = await makeOrganization(service, "100");
    const budget = await make(id, { limits: { requests_per_minute: 1 } });
    expect((await ask(token)).status).toBe(200);
    const body = { model: "sandbox/echo", max_tokens: 10, messages: [{ role: "user", content: "hello" }] };
    const message = await send(service, "/v1/messages", token, body);
    expect([message.status, await message.json()]).toMatchObject([
      429,
      { error: { type: "rate_limit_error", details: { budget: { id: budget.id, name: "Users" } } } },
    ]);
    const response = await send(service, "/v1/responses", token, { model: "sandbox/echo", input: "hello" });
    expect([response.status, (await errorOf(response)).budget]).toEqual([429, { id: budget.id, name: "Users" }]);
  });

  test("tokens per minute bound the prompt and the answer of what the selector covers", async () => {
    const { id, token } = await makeOrganization(service, "100");
    const selector = { models: ["sandbox/*"], metadata: { team: ["red"] } };
    await make(id, { name: "Red", selector, each: "model", limits: { tokens_per_minute: 500 } });
    const red = { metadata: { team: "red" } };
    const large = await ask(token, { ...red, max_tokens: 600 });
    expect([large.status, large.headers.get("x-should-retry")]).toEqual([429, "false"]);
    const error = await errorOf(large);
    expect(error.message).toContain(
      'tokens per minute of the budget "Red" for this model: limit 500. The request alone',
    );
    expect(error.budget).toMatchObject({ each: "model", value: "sandbox/echo" });
    const first = await ask(token, { ...red, max_tokens: undefined });
    // A request without a bound gets one that the limit allows.
    expect(first.status).toBe(200);
    expect(first.headers.get("x-ratelimit-limit-tokens")).toBe("500");
    expect((await ask(token, { max_tokens: 600 })).status).toBe(200);
    expect((await ask(token, { ...red, max_tokens: 600, model: "sandbox/story" })).status).toBe(429);
  });

  test("concurrent requests of a token are limited with its successors", async () => {
    const { id, token, tokenId } = await makeOrganization(service, "100");
    const selector = { tokens: [tokenId] };
    const budget = await make(id, { selector, each: "token", limits: { concurrent_requests: 1 } });
    const rotated = await admin().call("POST", `/tokens/${tokenId}/rotate`, {});
    const successor = String((rotated.body as { secret: string }).secret);
    const leaving = new AbortController();
    const messages = [{ role: "user", content: "delay 600s" }];
    const running = ask(token, { model: "sandbox/fault", messages }, leaving.signal).catch(() => undefined);
    await until(429, successor);
    const refused = await errorOf(await ask(successor));
    const named = { id: budget.id, name: "Users", each: "token", value: tokenId };
    expect(refused).toMatchObject({ limit_source: "budget", budget: named });
    expect(refused.message).toContain('concurrent requests of the budget "Users" for this token: limit 1.');
    leaving.abort();
    await running;
    await until(200, successor);
  });

  test("a change of the limits is in force at once, and so is the deletion of the budget", async () => {
    const { id, token } = await makeOrganization(service, "100");
    expect((await ask(token)).status).toBe(200);
    const { id: budgetId } = await make(id, { amount: 50, limits: { requests_per_minute: 1 } });
    await until(429, token);
    const change = (body: object) => admin().call<Budget>("PATCH", pathOf(id, budgetId), body);
    expect(await change({ limits: { requests_per_minute: 1_000 } })).toMatchObject({
      ...{ status: 200, body: { amount: 50, limits: { requests_per_minute: 1_000 } } },
    });
    await until(200, token);
    expect((await ask(token)).headers.get("x-budget-limit")).toBe("50");
    expect((await change({ limits: null })).body.limits).toBeNull();
    expect((await change({ limits: { tokens_per_minute: 1 } })).body.limits).toEqual({ tokens_per_minute: 1 });
    await until(429, token);
    expect((await admin().call("DELETE", pathOf(id, budgetId))).status).toBe(204);
    await until(200, token);
    const audit = await admin().call(`GET`, `/audit?organization_id=${id}&action=budget.change`);
    const [last] = audit.body.data as { before: object; after: object }[];
    expect(last).toMatchObject({ before: { limits: null }, after: { limits: { tokens_per_minute: 1 } } });
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });

  test("an amount that is added to limits counts from then on, and cannot be removed", async () => {
    const { id, token } = await makeOrganization(service, "100");
    const { id: budgetId } = await make(id, { limits: { requests_per_minute: 100 } });
    expect((await ask(token)).status).toBe(200);
    const raised = await admin().call("POST", `${pathOf(id, budgetId)}/raises`, { amount: 1 });
    expect(raised).toMatchObject({ status: 400, body: { error: { param: "amount" } } });
    const change = (body: object) => admin().call<Budget>("PATCH", pathOf(id, budgetId), body);
    expect((await change({ amount: 0.000001 })).body).toMatchObject({ amount: 0.000001, current: { spent: 0 } });
    const refused = await ask(token);
    expect([refused.status, (await errorOf(refused)).budget]).toMatchObject([402, { id: budgetId, window: "month" }]);
    expect(await change({ amount: null })).toMatchObject({ status: 400, body: { error: { param: "amount" } } });
    expect((await change({ limits: null, amount: 2 })).body).toMatchObject({ amount: 2, limits: null });
    expect((await ask(token)).status).toBe(200);
  });

  test.each([
    [{}, "amount"],
    [{ limits: null, amount: null }, "amount"],
    [{ limits: {} }, "amount"],
    [{ limits: { requests_per_minute: 0 } }, "limits.requests_per_minute"],
    [{ limits: { requests_per_minute: -1 }, amount: 1 }, "limits.requests_per_minute"],
    [{ limits: { tokens_per_minute: 1e12 } }, "limits.tokens_per_minute"],
    [{ limits: { tokens_per_minute: 1.5 } }, "limits.tokens_per_minute"],
    [{ limits: { concurrent_requests: "1" } }, "limits.concurrent_requests"],
    [{ limits: { requests_per_hour: 1 } }, "limits.requests_per_hour"],
    [{ limits: [1] }, "limits"],
  ])("a budget with %j is refused at %s", async (terms, param) => {
    const { id } = await makeOrganization(service, "1");
    const { status, body } = await admin().call("POST", pathOf(id), { name: "x", ...terms });
    expect([status, (body.error as { param: string }).param]).toEqual([400, param]);
  });

  test("the limits of a budget without an amount cannot be removed", async () => {
    const { id } = await makeOrganization(service, "1");
    const { id: budgetId } = await make(id, { limits: { requests_per_minute: 1 } });
    for (const limits of [null, {}]) {
      const { status, body } = await admin().call("PATCH", pathOf(id, budgetId), { limits });
      expect([status, (body.error as { param: string }).param]).toEqual([400, "limits"]);
    }
  });

  test("commands set, replace and remove limits", async () => {
    const { id } = await makeOrganization(service, "10");
    const run = <T = Budget>(...words: string[]) => service.tollgate<T>("budget", ...words, "--org", id);
    const made = await run("create", "--name", "Users", "--each", "metadata.user", "--requests-per-minute", "60");
    expect(made).toMatchObject({ amount: null, limits: { requests_per_minute: 60 } });
    const both = ["--tokens-per-minute", "5000", "--concurrent-requests", "2", "--amount", "4"];
    const limits = { tokens_per_minute: 5_000, concurrent_requests: 2 };
    expect(await run("update", made.id, ...both)).toMatchObject({ amount: 4, limits });
    expect(await run<Budget[]>("list")).toMatchObject([{ id: made.id, limits }]);
    expect(await run("update", made.id, "--no-limits")).toMatchObject({ amount: 4, limits: null });
    const unclear = run("update", made.id, "--no-limits", "--requests-per-minute", "1");
    await expect(unclear).rejects.toThrow(/limits: a new value and its removal exclude each other/);
    // No limit is stated in an object without any.
    const added = await make(id, { amount: 1, limits: {} });
    expect(added).toMatchObject({ amount: 1, limits: null });
    await expect(admin().call("POST", `${pathOf(id, added.id)}/raises`, { amount: 1 })).resolves.toMatchObject({
      status: 201,
    });
    const refused = await admin().call("POST", `${pathOf(id, (await make(id, { limits })).id)}/raises`, { amount: 1 });
    expect(refused.status).toBe(400);
    expect(JSON.stringify(refused.body)).toContain("absent: the budget has limits only");
    await expect(run("create", "--name", "None")).rejects.toThrow(/a budget needs an amount, limits or both/);
    await expect(run("create", "--name", "None", "--requests-per-minute", "0")).rejects.toThrow(/an integer from 1/);
  });
});
