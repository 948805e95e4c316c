import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AdminClient, operator, signIn } from "../support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
/** Longer than it takes a node to read the audit log, and much shorter than the pause. */
const WITHIN = { timeout: 60_000, interval: 50 };

let upstream: Upstream;
/** True while the upstream asks for a pause of three years. */
let isLimited = false;

beforeAll(async () => {
  upstream = await startUpstream();
  const answer = answering({ words: ["fine"], usage });
  for (const model of ["vendor/m", "google"]) {
    upstream.behave(model, (request) => {
      if (!isLimited) return answer(request);
      const details = [{ "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: "99999999s" }];
      const byBody = { error: { message: "slow down", status: "RESOURCE_EXHAUSTED", details } };
      if (model === "google") sendJson(request.response, 429, byBody);
      else sendJson(request.response, 429, { error: { message: "slow down" } }, { "retry-after": "99999999" });
    });
  }
});
afterAll(() => upstream?.close());

const configOf = ({ provider }: Upstream) => ({
  providers: [provider],
  models: ["vendor/m", "google"].map((model) => {
    return { id: model, price: { input: 1, output: 1 }, routes: [{ provider: "up", model }] };
  }),
});

const ask = (service: RunningService, { token }: Organization, model = "vendor/m") => {
  const body = { model, messages: [{ role: "user", content: "please" }], max_tokens: 4 };
  return send(service, "/v1/chat/completions", token, body);
};

interface Routes {
  data: { routes: { route: string; health: { limited_until: string | null } | null }[] }[];
}
const limitedUntilMs = async (client: AdminClient, name: string) => {
  const { body } = await client.call<Routes>("GET", "/models");
  const route = body.data.flatMap(({ routes }) => routes).find(({ route }) => route === name);
  return Date.parse(route?.health?.limited_until ?? "");
};

/** Has every service called while the upstream asks for a pause, and ends that afterwards. */
async function pause(services: RunningService[], organization: Organization, model?: string): Promise<void> {
  isLimited = true;
  for (const service of services) expect((await ask(service, organization, model)).status).toBe(503);
  isLimited = false;
  for (const service of services) expect((await ask(service, organization, model)).status).toBe(503);
}

describe("on one node", () => {
  let service: RunningService;
  let noisy: Organization;
  let quiet: Organization;
  beforeAll(async () => {
    service = await startService({ config: configOf(upstream) });
    noisy = await makeOrganization(service, "10", { scopes: MEMBER_SCOPES });
    quiet = await makeOrganization(service, "10");
  });
  afterAll(() => service?.end());

  test.each(["vendor/m", "google"])(
    "A rate limit of three years on %s pauses the route for a minute at most, which the operator ends.",
    async (model) => {
      const beganAtMs = Date.now();
      await pause([service], noisy, model);
      const until = await limitedUntilMs(operator(service), `up/${model}`);
      expect(until).toBeGreaterThan(beganAtMs + 50_000);
      expect(until).toBeLessThanOrEqual(Date.now() + 60_000);
      const refused = await ask(service, quiet, model);
      expect(refused.status).toBe(503);
      expect(Number(refused.headers.get("retry-after"))).toBeLessThanOrEqual(60);
      const resumed = await operator(service).call("POST", "/routes/resume", { route: `up/${model}` });
      expect([resumed.status, resumed.body]).toMatchObject([
        200,
        { object: "route", route: `up/${model}`, health: { state: "closed", limited_until: null } },
      ]);
      expect((await ask(service, quiet, model)).status).toBe(200);
    },
  );

  test("The command resumes a route within a second, and both ways are in the audit log.", async () => {
    await pause([service], noisy);
    expect(await service.tollgate("models", "resume", "up/vendor/m")).toEqual({ route: "up/vendor/m" });
    await expect.poll(async () => (await ask(service, quiet)).status, WITHIN).toBe(200);
    const { body } = await operator(service).call<{ data: object[] }>("GET", "/audit?action=route.resume");
    expect(body.data).toMatchObject([
      { actor: { kind: "command" }, subject_id: "up/vendor/m", organization_id: null },
      { actor: { kind: "operator" }, subject_id: "up/google" },
      { actor: { kind: "operator" }, subject_id: "up/vendor/m" },
    ]);
  });

  test("A record resumes a route once: a later pause lasts.", async () => {
    await pause([service], noisy);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect((await ask(service, quiet)).status).toBe(503);
    expect((await operator(service).call("POST", "/routes/resume", { route: "up/vendor/m" })).status).toBe(200);
    expect((await ask(service, quiet)).status).toBe(200);
  });

  test("A route that does not exist is refused, and so is a member.", async () => {
    const unknown = await operator(service).call("POST", "/routes/resume", { route: "up/other" });
    expect([unknown.status, unknown.body]).toMatchObject([400, { error: { code: "invalid_value", param: "route" } }]);
    const member = await signIn(service, noisy.token);
    expect((await member.call("POST", "/routes/resume", { route: "up/vendor/m" })).status).toBe(403);
    await expect(service.tollgate("models", "resume", "up/other")).rejects.toThrow(
      'There is no route with the id "up/other"',
    );
  });
});

describe.skipIf(!hasPostgres)("on two nodes with one PostgreSQL", () => {
  let database: TestDatabase;
  let first: RunningService;
  let second: RunningService;
  let organization: Organization;
  beforeAll(async () => {
    database = await createTestDatabase();
    first = await startService({ databaseUrl: database.url, config: configOf(upstream) });
    second = await startService({ databaseUrl: database.url, config: configOf(upstream) });
    organization = await makeOrganization(first, "10");
  });
  afterAll(async () => {
    await Promise.all([first?.end(), second?.end()]);
    await database?.drop();
  });

  test.each([
    ["the other node", () => new AdminClient(second, operator(first).headers).call("POST", "/routes/resume", ROUTE)],
    ["a command", () => first.tollgate("models", "resume", ROUTE.route)],
  ])("A route that is resumed by %s is called again by both within five seconds.", async (_by, resume) => {
    await pause([first, second], organization);
    await resume();
    for (const service of [first, second]) {
      await expect.poll(async () => (await ask(service, organization)).status, WITHIN).toBe(200);
    }
  });
});

const ROUTE = { route: "up/vendor/m" };
