import { afterEach, expect, test } from "vitest";
import type { Server, ServerOptions } from "../../src/http/server.ts";
import { startTestServer } from "../support/server.ts";

let server: Server;
let url: string;
/** Organizations whose overviews are being computed, and the functions that complete them. */
const running: { organizationId: string; end(): void }[] = [];

async function start(): Promise<void> {
  const member = (organizationId: string) => ({
    role: "member",
    id: "tok_1",
    organizationId,
    token: null,
    session: {},
  });
  const admin = {
    sessions: { find: async (secret: string) => member(`org_${secret[0]}`) },
    accounts: { organization: async (id: string) => ({ id }) },
    overviews: {
      overview: ({ organizationId }: { organizationId: string }) =>
        new Promise((resolve) => running.push({ organizationId, end: () => resolve({}) })),
    },
    clock: () => Date.now(),
  } as unknown as ServerOptions["admin"];
  ({ url, server } = await startTestServer({ admin }));
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
