import { afterAll, beforeAll, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";

let service: RunningService;

beforeAll(async () => {
  service = await startService();
});
afterAll(() => service?.end());

const WAITS = { timeout: 60_000 };

interface Overview {
  credits: { available: number; used: number; days_left: number | null };
  organizations: {
    active: number;
    out_of_credits: number;
    refused: { organization_id: string; name: string; requests: number }[];
    ending: { organization_id: string; name: string; available: number; days_left: number }[];
  } | null;
  totals: { requests: number; refused: number };
  days: { day: string; requests: number; refused: number }[];
  refusals: { code: string; requests: number }[];
}

const overview = async (query = "") =>
  (await operator(service).call<Overview>("GET", `/overview${query}`)).body as Overview;

const ask = async (token: string, maxTokens?: number) =>
  (
    await send(service, "/v1/chat/completions", token, {
      model: "sandbox/story",
      messages: [{ role: "user", content: "go" }],
      ...(maxTokens !== undefined && { max_tokens: maxTokens }),
    })
  ).status;

test("the credits of one organization hide from nobody that others cannot pay", async () => {
  const before = await overview();
  const rich = await makeOrganization(service, "100");
  const empty = await makeOrganization(service, "0.001");
  expect(await ask(rich.token, 10)).toBe(200);
  expect(await ask(empty.token, 10)).toBe(200);
  for (let sent = 0; sent < 100 && (await ask(empty.token, 10)) === 200; sent += 1);
  for (let sent = 0; sent < 4; sent += 1) expect(await ask(empty.token, 10)).toBe(402);
  await expect.poll(async () => (await overview(`?organization_id=${empty.id}`)).totals.refused).toBe(5);

  const all = await overview();
  expect(all.credits.available).toBeGreaterThan(99);
  expect(all.credits.days_left).toBeNull();
  expect(all.organizations?.active).toBe((before.organizations?.active ?? 0) + 2);
  // The sums of the current hour are up to three seconds old.
  const listed = async () => (await overview()).organizations?.ending.map(({ organization_id }) => organization_id);
  await expect.poll(listed).toContain(empty.id);
  expect(await listed()).not.toContain(rich.id);
  expect(all.refusals).toEqual([{ code: "insufficient_credits", requests: 5 }]);
  expect(all.days.at(-1)).toMatchObject({ refused: 5 });
  expect(all.organizations?.refused).toEqual([{ organization_id: empty.id, name: "Test", requests: 5 }]);
  expect((await overview("?from=2020-01-01&to=2020-01-02")).organizations?.refused).toEqual([]);

  const own = await overview(`?organization_id=${rich.id}`);
  expect(own.organizations).toBeNull();
  expect(own.credits.days_left).toBeGreaterThan(0);
  expect(own.refusals).toEqual([]);
});

test("an organization has a rate and days left from its first hour on", async () => {
  const { id, token } = await makeOrganization(service, "10");
  expect((await operator(service).call("GET", `/organizations/${id}`)).body.days_left).toBeNull();
  expect(await ask(token, 10)).toBe(200);
  // At most an hour old: its charges are those of an hour.
  const lastingOf = (credits: { available: number; used: number }) => credits.available / (24 * credits.used);
  const read = async () => (await overview(`?organization_id=${id}`)).credits;
  // The sums of the current hour are up to three seconds old.
  await expect.poll(async () => (await read()).days_left, WAITS).not.toBeNull();
  const credits = await read();
  expect(credits.days_left).toBeCloseTo(lastingOf(credits), 6);
  const { body } = await operator(service).call<{ days_left: number; credits: typeof credits }>(
    "GET",
    `/organizations/${id}`,
  );
  expect(body.days_left).toBeCloseTo(lastingOf(body.credits), 6);
});

test("organizations that never had credits and paused ones are told apart", async () => {
  const before = (await overview()).organizations;
  await makeOrganization(service, "0");
  const paused = await makeOrganization(service, "0");
  await operator(service).call("PATCH", `/organizations/${paused.id}`, { status: "paused" });
  const { organizations } = await overview();
  expect(organizations?.active).toBe((before?.active ?? 0) + 1);
  expect(organizations?.out_of_credits).toBe((before?.out_of_credits ?? 0) + 1);
});

test("the latencies of a model have every day of the range, on all routes together", async () => {
  const today = new Date().toISOString().slice(0, 10);
  const latencies = (query: string) => operator(service).call("GET", `/latencies?${query}`);
  const { body } = await latencies(`model=m&from=${today}&to=${today}`);
  const day = { day: today, first_token_ms: null, duration_ms: null };
  expect(body).toMatchObject({ object: "latencies", pending_days: 0, data: [{ route: null, days: [day] }] });
  expect(((await latencies("model=m")).body.data as { days: object[] }[])[0]?.days).toHaveLength(30);
  expect((await latencies("model=m&from=2999-01-01")).status).toBe(400);
  expect((await latencies("")).status).toBe(400);
});
