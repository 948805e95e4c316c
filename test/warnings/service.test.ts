import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator, signIn } from "../support/admin.ts";
import { onOneDay } from "../support/patience.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import {
  freePort,
  MEMBER_SCOPES,
  makeDirectory,
  makeOrganization,
  type RunningService,
  type ServiceProcess,
  send,
  startProcess,
  startService,
} from "../support/service.ts";

const CONFIG = { warnings: { allowPrivateAddresses: true } };
const LONG = { timeout: 120_000 };

interface Seen {
  id: string;
  type: string;
  organizationId: string | null;
  capOf: unknown;
  /** Throws if the request is not signed with this secret. */
  verify(secret: string): unknown;
}

/** A receiver that answers everything with 204. */
class TestReceiver {
  readonly seen: Seen[] = [];
  readonly #server: Server;

  constructor() {
    this.#server = createServer(async (request, response) => {
      let body = "";
      for await (const piece of request) body += piece;
      const { type, data } = JSON.parse(body);
      const verify = (secret: string) => new Webhook(secret).verify(body, request.headers as Record<string, string>);
      const { organization_id: organizationId, cap_of: capOf } = data;
      this.seen.push({ id: String(request.headers["webhook-id"]), type, organizationId, capOf, verify });
      response.writeHead(204).end();
    });
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  of(organizationId: string): Seen[] {
    return this.seen.filter((one) => one.organizationId === organizationId);
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

interface Created {
  id: string;
  secret: string | null;
}

async function createReceiver(service: RunningService, terms: object): Promise<Created> {
  const body = { name: "Ops", format: "webhook", ...terms };
  const answer = await operator(service).call<Created>("POST", "/receivers", body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  return answer.body;
}

/** Creates an organization with 5 credits, which any charge lets fall to a threshold. */
async function nearThreshold(service: RunningService) {
  const organization = await makeOrganization(service, "5");
  const change = { credit_warnings: [4.999999] };
  const { status, body } = await operator(service).call("PATCH", `/organizations/${organization.id}`, change);
  expect([status, body.credit_warnings]).toEqual([200, [4.999999]]);
  return organization;
}

const ask = (service: RunningService, token: string) =>
  send(service, "/v1/chat/completions", token, {
    model: "sandbox/echo",
    messages: [{ role: "user", content: "hello" }],
  });

describe("a service", () => {
  let service: RunningService;
  /** It is one of the service, because those of organizations cannot be on this machine. */
  const receiver = new TestReceiver();
  let target: string;
  let receiverId: string;
  beforeAll(async () => {
    target = await receiver.start();
    service = await startService({ config: CONFIG });
    receiverId = (await createReceiver(service, { target })).id;
  });
  afterAll(async () => {
    await service?.end();
    receiver.stop();
  });

  test("an organization has 20 receivers at most, and leaves places for those of others", async () => {
    const [one, other] = [await makeOrganization(service, "1"), await makeOrganization(service, "1")];
    const terms = { name: "Ops", format: "webhook", target: "https://hooks.example.com/" };
    const create = (organization: { id: string }) =>
      operator(service).call("POST", "/receivers", { ...terms, organization_id: organization.id });
    const statuses: number[] = [];
    for (let count = 0; count < 21; count += 1) statuses.push((await create(one)).status);
    expect(statuses).toEqual([...Array(20).fill(201), 400]);
    expect((await create(other)).status).toBe(201);
  });

  test("the example of docs/warnings.md verifies the test event that it is sent", async () => {
    const page = await readFile(new URL("../../docs/warnings.md", import.meta.url), "utf8");
    const [, code = ""] = /```js\n(.*?)```/s.exec(page) ?? [];
    const port = await freePort();
    const { id, secret } = await createReceiver(service, { target: `http://127.0.0.1:${port}/` });
    const child = spawn(process.execPath, ["--input-type=module", "-e", code.replace("8080", String(port))], {
      cwd: new URL("../../", import.meta.url),
      env: { PATH: process.env.PATH, WEBHOOK_SECRET: secret ?? "" },
    });
    let printed = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => (printed += piece));
    try {
      const tested = await operator(service).call<{ event_id: string }>("POST", `/receivers/${id}/test`);
      expect([tested.status, tested.body]).toEqual([201, expect.objectContaining({ kind: "receiver.test" })]);
      await expect.poll(() => printed, LONG).toContain(`${tested.body.event_id} receiver.test`);
    } finally {
      child.kill();
      await operator(service).call("DELETE", `/receivers/${id}`);
    }
  });

  test("a warning of a cap names the token that it is changed with now", async () => {
    const { id, token, tokenId } = await makeOrganization(service, "5");
    expect((await ask(service, token)).status).toBe(200);
    const rotated = await operator(service).call("POST", `/tokens/${tokenId}/rotate`, {});
    const successor = rotated.body as { id: string; secret: string };
    const setCap = async (cap: number) => {
      const { body } = await operator(service).call("PATCH", `/tokens/${successor.id}`, { cap });
      return (body.cap as { spent: number }).spent;
    };
    await setCap(await setCap(1));
    expect((await ask(service, successor.secret)).status).toBe(402);
    const used = () => receiver.of(id).filter(({ type }) => type === "budget.used");
    await expect.poll(() => used().map(({ capOf }) => capOf), LONG).toEqual([successor.id]);
  });

  test("a person's request for credits arrives once a day, and is in the audit log", async () => {
    const { id, token } = await makeOrganization(service, "1", { scopes: MEMBER_SCOPES });
    const member = await signIn(service, token);
    const path = `/organizations/${id}/credit-requests`;
    await onOneDay();
    const asked = await member.call("POST", path, { amount: 20, note: "For the demo" });
    const request = { object: "credit_request", organization_id: id, amount: 20, note: "For the demo" };
    expect([asked.status, asked.body]).toEqual([201, { ...request, repeated: false }]);
    await expect.poll(() => receiver.of(id).map(({ type }) => type), LONG).toEqual(["credits.requested"]);
    const again = await member.call("POST", path, { amount: 30 });
    expect([again.status, again.body.repeated]).toEqual([200, true]);
    for (const amount of [0, -1, 0.0000001]) expect((await member.call("POST", path, { amount })).status).toBe(400);
    const other = await makeOrganization(service, "1");
    expect((await member.call("POST", `/organizations/${other.id}/credit-requests`, { amount: 1 })).status).toBe(404);
    expect((await operator(service).call("POST", path, { amount: 1 })).status).toBe(403);
    const audit = await operator(service).call<{ data: object[] }>("GET", "/audit?action=credits.request");
    expect(audit.body.data).toMatchObject([{ organization_id: id, after: { amount: 20, note: "For the demo" } }]);
    expect(receiver.of(id)).toHaveLength(1);
  });

  test("a charge that reaches a threshold arrives once; requests after it cause no event", async () => {
    const organization = await nearThreshold(service);
    for (let requests = 0; requests < 3; requests += 1)
      expect((await ask(service, organization.token)).status).toBe(200);
    await expect.poll(() => receiver.of(organization.id).length, LONG).toBe(1);
    const [seen] = receiver.of(organization.id);
    const list = async () => {
      const path = `/deliveries?receiver_id=${receiverId}&state=delivered&limit=200`;
      const { body } = await operator(service).call<{ data: Record<string, unknown>[] }>("GET", path);
      return body.data.filter(({ event_id }) => event_id === seen?.id);
    };
    await expect.poll(async () => (await list()).length, LONG).toBe(1);
    const [delivery] = await list();
    const shown = { kind: "credits.low", event_id: seen?.id, attempts: 1, result: "HTTP 204", next_attempt_at: null };
    expect(delivery).toMatchObject({ object: "delivery", receiver_id: receiverId, ...shown });
    const replayed = await operator(service).call("POST", `/deliveries/${delivery?.id}/replay`);
    expect([replayed.status, replayed.body.state]).toEqual([200, "waiting"]);
    await expect.poll(() => receiver.of(organization.id).map((one) => one.id), LONG).toEqual([seen?.id, seen?.id]);
  });

  test("closing an organization sends no warning that its credits are used up", async () => {
    const { id } = await makeOrganization(service, "5");
    const next = await nearThreshold(service);
    const closed = await operator(service).call("POST", `/organizations/${id}/close`, { rest: "lapsed" });
    expect(closed).toMatchObject({ status: 200, body: { credits: { available: 0 } } });
    // Deliveries are written in the order of their events, so that of the next event shows that none is to come.
    expect((await ask(service, next.token)).status).toBe(200);
    await expect.poll(() => receiver.of(next.id).length, LONG).toBe(1);
    expect((await operator(service).call("GET", `/deliveries?organization_id=${id}`)).body.data).toEqual([]);
  });

  test("a secret is in one answer only, and in no list, audit record or log", async () => {
    const headers = { "idempotency-key": "receiver-1" };
    const body = { name: "Secret", format: "slack", target: `${target}T000/B000/secretpath` };
    const post = () => operator(service).call<Created & { hint?: string }>("POST", "/receivers", body, headers);
    const { body: made } = await post();
    expect(made.secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect((await post()).body).toMatchObject({ id: made.id, secret: null, hint: expect.stringContaining(made.id) });
    const rotated = await operator(service).call<Created>("POST", `/receivers/${made.id}/rotate`);
    const listed = await operator(service).call("GET", "/receivers");
    const audit = await operator(service).call("GET", "/audit");
    expect(JSON.stringify(audit.body)).toContain("receiver.rotate");
    for (const secret of [made.secret, rotated.body.secret]) {
      expect(JSON.stringify([listed.body, audit.body]) + service.output()).not.toContain(secret);
    }
    expect(JSON.stringify(audit.body) + service.output()).not.toContain("secretpath");
    expect((await operator(service).call("DELETE", `/receivers/${made.id}`)).status).toBe(204);
    expect((await operator(service).call("DELETE", `/receivers/${made.id}`)).status).toBe(404);
  });

  test("deliveries are signed with a replaced secret too, also after its successor was replaced", async () => {
    const { id, secret } = await createReceiver(service, { target, kinds: ["receiver.disabled"] });
    const secrets = [secret];
    for (const _ of [1, 2]) {
      const { status, body } = await operator(service).call<Created>("POST", `/receivers/${id}/rotate`);
      expect(status).toBe(201);
      secrets.push(body.secret);
    }
    expect(new Set(secrets).size).toBe(3);
    const tested = await operator(service).call<{ event_id: string }>("POST", `/receivers/${id}/test`);
    const arrived = () => receiver.seen.filter((one) => one.id === tested.body.event_id);
    await expect.poll(() => arrived().length, LONG).toBe(1);
    for (const one of secrets) expect(arrived()[0]?.verify(one ?? "")).toMatchObject({ type: "receiver.test" });
    const other = `whsec_${Buffer.alloc(32).toString("base64")}`;
    expect(() => arrived()[0]?.verify(other)).toThrow("No matching signature");
  });

  test("wrong terms are refused with the field", async () => {
    const terms = { name: "Ops", format: "webhook", target: "https://hooks.example.com/" };
    const cases: [object, string][] = [
      [{ target: "ftp://example.com/" }, "target"],
      [{ target: "http://example.com/" }, "target"],
      [{ target: "https://user:secret@example.com/" }, "target"],
      [{ format: "mail", target: "ops@example.com" }, "target"],
      [{ kinds: ["credits.unknown"] }, "kinds"],
      [{ kinds: [] }, "kinds"],
      [{ name: "a\nb" }, "name"],
      [{ format: "fax" }, "format"],
      [{ other: 1 }, "other"],
    ];
    for (const [change, param] of cases) {
      const { status, body } = await operator(service).call("POST", "/receivers", { ...terms, ...change });
      expect([status, body]).toEqual([400, { error: expect.objectContaining({ param }) }]);
    }
    const unknown = await operator(service).call("POST", "/receivers", { ...terms, organization_id: "org_none" });
    expect(unknown.status).toBe(404);
    for (const credit_warnings of [[], [-1], [0.0000001], [1e12], Array(11).fill(1)]) {
      const { id } = await makeOrganization(service, "1");
      const { status, body } = await operator(service).call("PATCH", `/organizations/${id}`, { credit_warnings });
      expect([status, JSON.stringify(body)]).toEqual([400, expect.stringContaining("credit_warnings")]);
    }
    const { id } = await makeOrganization(service, "1");
    const change = { credit_warnings: [1], pauses_allowances: true };
    expect((await operator(service).call("PATCH", `/organizations/${id}`, change)).status).toBe(400);
    expect((await operator(service).call("GET", `/organizations/${id}`)).body.credit_warnings).toBeNull();
  });

  test("a disabled receiver is sent neither a test event nor a delivery again, and both are refused", async () => {
    const { id } = await createReceiver(service, { target, kinds: ["receiver.test"] });
    const tested = await operator(service).call<{ id: string; event_id: string }>("POST", `/receivers/${id}/test`);
    await expect.poll(() => receiver.seen.map((one) => one.id), LONG).toContain(tested.body.event_id);
    expect((await operator(service).call("PATCH", `/receivers/${id}`, { enabled: false })).status).toBe(200);
    const message = "id is a disabled receiver, but must be an enabled one: enable it first.";
    for (const path of [`/receivers/${id}/test`, `/deliveries/${tested.body.id}/replay`]) {
      const refused = await operator(service).call("POST", path);
      expect(refused).toMatchObject({ status: 400, body: { error: { message, param: "id" } } });
    }
    const { body } = await operator(service).call<{ data: object[] }>("GET", `/deliveries?receiver_id=${id}`);
    expect(body.data).toMatchObject([{ id: tested.body.id, attempts: 1 }]);
  });

  test("the commands create, list, test, disable, enable and delete a receiver", async () => {
    const made = await service.tollgate<Created>("receiver", "create", "--name", "CLI", "--target", target);
    expect(made.secret).toMatch(/^whsec_/);
    const list = async () => service.tollgate<{ id: string }[]>("receiver", "list");
    expect(await list()).toContainEqual(expect.objectContaining({ id: made.id, target, status: "active" }));
    const tested = await service.tollgate<{ eventId: string }>("receiver", "test", made.id);
    await expect.poll(() => receiver.seen.map(({ id }) => id), LONG).toContain(tested.eventId);
    expect(await service.tollgate("receiver", "disable", made.id)).toMatchObject({ status: "disabled" });
    expect(await service.tollgate("receiver", "enable", made.id)).toMatchObject({ status: "active" });
    expect(await service.tollgate("receiver", "rotate", made.id)).toMatchObject({ secret: expect.any(String) });
    const deliveries = await service.tollgate<{ id: string }[]>("receiver", "deliveries", "--receiver", made.id);
    expect(deliveries).toMatchObject([{ kind: "receiver.test" }]);
    expect(await service.tollgate("receiver", "replay", deliveries[0]?.id ?? "")).toMatchObject({ state: "waiting" });
    expect(await service.tollgate("receiver", "delete", made.id)).toEqual({ id: made.id, deleted: true });
    const organization = await makeOrganization(service, "1");
    const warned = await service.tollgate("org", "warnings", organization.id, "--at", "0.5", "0.25");
    expect(warned).toEqual({ id: organization.id, creditWarnings: [0.5, 0.25] });
  });
});

test("an event arrives although its service is killed right after the charge", async () => {
  const receiver = new TestReceiver();
  const target = await receiver.start();
  const dataDir = await makeDirectory();
  const killed = await startProcess({ config: CONFIG, dataDir });
  const organization = await nearThreshold(killed);
  await createReceiver(killed, { target });
  await ask(killed, organization.token);
  await killed.end("SIGKILL");
  const service = await startService({ config: CONFIG, dataDir });
  try {
    await expect.poll(() => receiver.of(organization.id).length, LONG).toBeGreaterThan(0);
    expect(new Set(receiver.of(organization.id).map(({ id, type }) => `${type} ${id}`)).size).toBe(1);
  } finally {
    await service.end();
    receiver.stop();
  }
});

describe.skipIf(!hasPostgres)("three nodes on one PostgreSQL", () => {
  let database: TestDatabase;
  const nodes: ServiceProcess[] = [];
  beforeAll(async () => {
    database = await createTestDatabase();
    for (let index = 0; index < 3; index += 1)
      nodes.push(await startProcess({ config: CONFIG, databaseUrl: database.url }));
  });
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.end()));
    await database?.drop();
  });

  test("an event of concurrent requests on all nodes has one id, and arrives also if a node is killed", async () => {
    const receiver = new TestReceiver();
    const target = await receiver.start();
    const [first, , third] = nodes as [ServiceProcess, ServiceProcess, ServiceProcess];
    const organization = await nearThreshold(first);
    await createReceiver(first, { target });
    const requests = nodes.flatMap((node) => Array.from({ length: 10 }, () => ask(node, organization.token)));
    for (const { status } of await Promise.all(requests)) expect(status).toBe(200);
    await third.end("SIGKILL");
    await expect.poll(() => receiver.of(organization.id).length, LONG).toBeGreaterThan(0);
    expect(new Set(receiver.of(organization.id).map(({ id, type }) => `${type} ${id}`)).size).toBe(1);
    receiver.stop();
  });
});
