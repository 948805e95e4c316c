import { afterAll, beforeAll, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import {
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
  usageOf,
} from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

/** An output token costs one credit, the input almost nothing. */
const PRICE = { input: 0.000001, output: 1_000_000 };
const usage = { prompt_tokens: 10, completion_tokens: 40, total_tokens: 50 };

let upstream: Upstream;
let service: RunningService;

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("quick", answering({ words: Array(40).fill("word "), usage, pauseMs: 0 }));
  upstream.behave("mute", () => {});
  service = await startService({
    config: {
      ledger: { holdSeconds: 3, renewSeconds: 0.5, sweepSeconds: 0.2 },
      providers: [upstream.provider],
      models: ["quick", "mute"].map((id) => ({ id, price: PRICE, routes: [{ provider: "up", model: id }] })),
    },
  });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const complete = (token: string, model: string, maxTokens: number, options: RequestInit = {}) =>
  send(
    service,
    "/v1/chat/completions",
    token,
    { model, messages: [{ role: "user", content: "go" }], max_tokens: maxTokens, stream: model === "mute" },
    options,
  );
/** Long enough for a few requests on a busy machine, but not for a command. */
const SOON_MS = 6_000;
async function book(organization: Organization, what: string, terms: object): Promise<void> {
  const { status } = await operator(service).call("POST", `/organizations/${organization.id}/${what}`, terms);
  expect(status).toBe(201);
}
const errorOf = async (answer: Response) => ((await answer.json()) as { error: Record<string, unknown> }).error;

/** Rounds to whole credits: the input costs less than a thousandth. */
async function creditsOf(organization: Organization) {
  const { creditsTotal, creditsAvailable, creditsUsed, creditsHeld } = await usageOf(service, organization.token);
  return [creditsTotal, creditsAvailable, creditsUsed, creditsHeld].map(Math.round);
}

/**
 * Begins a request that runs until its client disconnects, and waits until its credits are held. It is streamed, so that
 * the client sees that there was no output to charge.
 */
async function running(organization: Organization, maxTokens: number, token = organization.token) {
  const leaving = new AbortController();
  const [, , , before = 0] = await creditsOf(organization);
  void complete(token, "mute", maxTokens, { signal: leaving.signal }).catch(() => {});
  const heldIs = async (amount: number) => {
    while ((await creditsOf(organization))[3] !== amount) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  await heldIs(before + maxTokens);
  return async () => {
    leaving.abort();
    await heldIs(before);
  };
}

test("402 has the number of affordable tokens, and a request for that number is admitted.", async () => {
  const organization = await makeOrganization(service, "45.5");
  const refused = await complete(organization.token, "quick", 46);
  expect(refused.status).toBe(402);
  expect(refused.headers.get("x-should-retry")).toBe("false");
  const error = await errorOf(refused);
  expect(error).toMatchObject({ code: "insufficient_credits", affordable_max_tokens: 45, credits_available: 45.5 });
  expect(error.credits_required).toBeGreaterThan(46);
  expect((await complete(organization.token, "quick", 45)).status).toBe(200);
});

test("429 is the answer while running requests hold the credits, and a later request is admitted.", async () => {
  const organization = await makeOrganization(service, "100");
  const leave = await running(organization, 80);
  const busy = await complete(organization.token, "quick", 50);
  expect(busy.status).toBe(429);
  expect(busy.headers.get("retry-after")).toBe("1");
  expect(await errorOf(busy)).toMatchObject({ code: "credits_held", message: expect.stringMatching(/organization/) });
  await leave();
  expect((await complete(organization.token, "quick", 50)).status).toBe(200);
});

test("Where the balance and a cap fall short, the refusal names the balance and its amount.", async () => {
  const organization = await makeOrganization(service, "30");
  const { token } = await makeToken(service, organization.id, { cap: 20 });
  const error = await errorOf(await complete(token, "quick", 100));
  expect(error).toMatchObject({ code: "insufficient_credits", limit_source: "organization", credits_available: 30 });
  expect(error.message).toContain("30 are available");
});

test("Requests beyond a token's cap get 429 while others run, and 402 when the cap is spent.", async () => {
  const organization = await makeOrganization(service, "1000");
  const { token } = await makeToken(service, organization.id, { cap: 100 });
  const leave = await running(organization, 80, token);
  const busy = await complete(token, "quick", 50);
  expect(busy.status).toBe(429);
  expect(await errorOf(busy)).toMatchObject({ code: "credits_held", message: expect.stringMatching(/token's cap/) });
  // The organization's other tokens are not affected.
  expect((await complete(organization.token, "quick", 50)).status).toBe(200);
  await leave();
  expect((await complete(token, "quick", 50)).status).toBe(200);
  const refused = await complete(token, "quick", 90);
  expect(refused.status).toBe(402);
  const error = await errorOf(refused);
  expect(error).toMatchObject({ code: "insufficient_credits", message: expect.stringMatching(/token's cap/) });
  expect(error.affordable_max_tokens).toBe(59);
  expect(Math.round(error.credits_available as number)).toBe(60);
  expect((await complete(token, "quick", 59)).status).toBe(200);
});

test("Of 100 concurrent requests on a cap for 10, only those that the cap covers are admitted.", async () => {
  const organization = await makeOrganization(service, "100000");
  const { token, tokenId } = await makeToken(service, organization.id, { cap: 405 });
  const answers = await Promise.all(Array.from({ length: 100 }, () => complete(token, "quick", 40)));
  const statuses = answers.map(({ status }) => status);
  expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(10);
  for (const status of statuses) expect([200, 402, 429]).toContain(status);
  while ((await complete(token, "quick", 40)).status === 200);
  const tokens = await service.tollgate<{ id: string; creditsUsed: number }[]>(
    "token",
    "list",
    "--org",
    organization.id,
  );
  const used = tokens.find(({ id }) => id === tokenId)?.creditsUsed ?? 0;
  expect(Math.round(used)).toBe(400);
  expect(used).toBeLessThanOrEqual(405);
});

test("creditsTotal and creditsAvailable are right after grants, holds, charges, expiry, revocations and credits.", async () => {
  const organization = await makeOrganization(service, "100");
  const credits = (verb: string, ...words: string[]) =>
    service.tollgate<{ id: string; creditsTotal: number }>("credits", verb, "--org", organization.id, ...words);
  expect(await creditsOf(organization)).toEqual([100, 100, 0, 0]);
  // The expiring grant is spent first. Only credits that are not held expire.
  const lapsesAtMs = Date.now() + SOON_MS;
  await book(organization, "grants", { amount: 50, expires_at: new Date(lapsesAtMs).toISOString() });
  expect(await creditsOf(organization)).toEqual([150, 150, 0, 0]);
  const leave = await running(organization, 30);
  expect(await creditsOf(organization)).toEqual([150, 120, 0, 30]);
  while (Date.now() <= lapsesAtMs) await new Promise((resolve) => setTimeout(resolve, 50));
  expect(await creditsOf(organization)).toEqual([130, 100, 0, 30]);
  // Credits that the hold returns to an expired grant expire too.
  await leave();
  expect(await creditsOf(organization)).toEqual([100, 100, 0, 0]);

  const { id } = (await (await complete(organization.token, "quick", 40)).json()) as { id: string };
  expect(await creditsOf(organization)).toEqual([100, 60, 40, 0]);
  await credits("credit", "30", "--completion", id, "--reference", "case 1", "--note", "a bad answer");
  await credits("credit", "30", "--completion", id, "--reference", "case 1");
  expect(await creditsOf(organization)).toEqual([100, 90, 10, 0]);
  await credits("credit", "5", "--note", "goodwill");
  expect(await creditsOf(organization)).toEqual([100, 95, 5, 0]);
  await credits("revoke", "20", "--reference", "refund");
  await credits("revoke", "20", "--reference", "refund");
  expect(await creditsOf(organization)).toEqual([80, 75, 5, 0]);
  await credits("revoke", "--all");
  expect(await creditsOf(organization)).toEqual([5, 0, 5, 0]);
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});

test("An allowance is granted at once, and each month while the service runs.", async () => {
  const organization = await makeOrganization(service, "0");
  await service.tollgate("credits", "allowance", "create", "25", "--org", organization.id);
  expect(await creditsOf(organization)).toEqual([25, 25, 0, 0]);
  await book(organization, "allowances", { amount: 25, begins_at: new Date(Date.now() + SOON_MS).toISOString() });
  expect(await creditsOf(organization)).toEqual([25, 25, 0, 0]);
  while ((await creditsOf(organization))[0] === 25) await new Promise((resolve) => setTimeout(resolve, 100));
  expect(await creditsOf(organization)).toEqual([50, 50, 0, 0]);
});
