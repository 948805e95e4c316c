import { afterEach, expect, test } from "vitest";
import { ApiError } from "../../src/errors.ts";
import type { Gateway } from "../../src/gateway/gateway.ts";
import { LocalLimiter } from "../../src/gateway/limits/local.ts";
import type { Server, ServerOptions } from "../../src/http/server.ts";
import { FROM_CONSOLE } from "../support/admin.ts";
import { startTestServer } from "../support/server.ts";

let server: Server;
let url: string;
/** Organizations whose overviews are being computed or who wait for Stripe, and the functions that end it. */
const running: { organizationId: string; end(): void }[] = [];

async function start(): Promise<void> {
  const member = (organizationId: string) => ({
    role: "owner",
    id: "tok_1",
    organizationId,
    token: null,
    session: {},
  });
  const admin = {
    sessions: { find: async (secret: string) => member(`org_${secret[0]}`) },
    accounts: { organization: async (id: string) => ({ id, kind: "standard" }) },
    overviews: {
      overview: ({ organizationId }: { organizationId: string }) =>
        new Promise((resolve) => running.push({ organizationId, end: () => resolve({}) })),
    },
    checkouts: async () => ({
      offers: { find: () => ({ price: 1n, currency: "eur", credits: 1n }) },
      api: {
        createSession: ({ organizationId }: { organizationId: string }) =>
          new Promise((_, reject) =>
            running.push({ organizationId, end: () => reject(new ApiError("payment_provider_unavailable")) }),
          ),
      },
    }),
    clock: () => Date.now(),
  } as unknown as ServerOptions["admin"];
  // All requests of a test are made in the same minute.
  const gateway = { limits: new LocalLimiter(() => 0) } as unknown as Gateway;
  ({ url, server } = await startTestServer({ admin, gateway }));
}

afterEach(() => server.close({ delayMs: 0, drainMs: 100 }));

const ask = (organization: string, path: string) =>
  fetch(`${url}/admin/v1/${path}`, { headers: { cookie: `tollgate_session=${organization.repeat(43)}` } });
const names = () => running.map(({ organizationId }) => organizationId);

test("The members of an organization are served one at a time, and those of others meanwhile.", async () => {
  await start();
  const many = Array.from({ length: 10 }, () => ask("a", "overview"));
  await expect.poll(names).toEqual(["org_a"]);
  const other = ask("b", "overview");
  await expect.poll(names).toEqual(["org_a", "org_b"]);
  running.pop()?.end();
  expect((await other).status).toBe(200);
  for (let left = many.length; left > 0; left -= 1) {
    await expect.poll(names).toEqual(["org_a"]);
    running.pop()?.end();
  }
  for (const answer of await Promise.all(many)) expect(answer.status).toBe(200);
});

test("The members of an organization make 1,200 requests a minute at most, and those of others are not counted.", async () => {
  await start();
  for (let count = 0; count < 1_200; count += 1) await (await ask("a", "organizations/org_z")).arrayBuffer();
  const refused = await ask("a", "organizations/org_z");
  expect(refused.status).toBe(429);
  expect(await refused.json()).toMatchObject({
    error: { message: expect.stringContaining("requests per minute of this organization's console: limit 1200") },
  });
  expect((await ask("b", "organizations/org_z")).status).toBe(404);
});

test("The members of an organization begin at most ten payments a minute, and no other request waits for Stripe.", async () => {
  await start();
  const buy = (organization: string) =>
    fetch(`${url}/admin/v1/organizations/org_${organization}/checkouts`, {
      method: "POST",
      headers: {
        ...FROM_CONSOLE,
        "content-type": "application/json",
        cookie: `tollgate_session=${organization.repeat(43)}`,
      },
      body: JSON.stringify({ amount: 10, return_url: "https://ai.example.com/credits" }),
    });
  const bought = ["a", "b", "c", "d"].flatMap((organization) => Array.from({ length: 10 }, () => buy(organization)));
  await expect.poll(() => running.length).toBe(40);
  const refused = await buy("a");
  expect(refused.status).toBe(429);
  expect(await refused.json()).toMatchObject({
    error: { message: expect.stringContaining("requests per minute of this organization's purchases: limit 10") },
  });
  for (const organization of ["a", "e"]) {
    const answer = ask(organization, "overview");
    await expect.poll(() => running.length).toBe(41);
    running.pop()?.end();
    expect((await answer).status).toBe(200);
  }
  for (const { end } of running.splice(0)) end();
  for (const answer of await Promise.all(bought)) expect(answer.status).toBe(503);
});
