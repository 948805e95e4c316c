import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeSigningSecret } from "../../src/admin/receivers.ts";
import type { EventKind } from "../../src/api/admin/event-kinds.ts";
import { eventOf } from "../../src/credits/warnings.ts";
import type { EventDelivery, ReceiverRow } from "../../src/stores/queries/events.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { DISABLED_AFTER_MS, Dispatcher, RETRY_AFTER_MS, type Sender } from "../../src/warnings/dispatcher.ts";
import { type WebhookOptions, webhookSender } from "../../src/warnings/webhook.ts";

const SECRET = makeSigningSecret((count) => new Uint8Array(count).fill(7));
const ORGANIZATION = "org_a";
const START_MS = 1_800_000_000_000;

interface Received {
  headers: IncomingHttpHeaders;
  body: string;
}

let directory: string;
let store: Store;
let nowMs: number;
let received: Received[];
let answer: (response: ServerResponse) => void;
let target: string;
let dispatchers: Dispatcher[];
const settings = { mailsStatements: true, publicUrl: "https://ai.example.com/" };

const server = createServer((request, response) => {
  let body = "";
  request.on("data", (piece) => (body += piece));
  request.on("end", () => {
    received.push({ headers: request.headers, body });
    answer(response);
  });
});

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  target = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tollgate-warnings-"));
  store = await openSqliteStore({ dataDir: directory, role: "service" });
  nowMs = START_MS;
  received = [];
  answer = (response) => response.writeHead(204).end();
  dispatchers = [];
  await store.accounts.insertOrganization({ id: ORGANIZATION, name: "Acme", kind: "standard", createdAtMs: 1 });
});
afterEach(async () => {
  for (const dispatcher of dispatchers) await dispatcher.stop();
  await store.close();
  await rm(directory, { recursive: true });
});

function dispatcherOf(
  options: Partial<WebhookOptions> = {},
  sender: Sender = webhookSender({ allowsPrivate: () => true, clock: () => nowMs, ...options }),
): Dispatcher {
  const failed = ({ err }: { err?: unknown }) => {
    throw err;
  };
  const dispatcher = new Dispatcher({
    ...{ rows: store.events, accounts: store.accounts, statements: store.monthlyStatements, clock: () => nowMs },
    ...{ senderOf: () => sender, settings: () => settings },
    outage: { failed, succeeded: () => {} },
    close: () => sender.close(),
  });
  dispatchers.push(dispatcher);
  return dispatcher;
}

/** Lets nodes look for what is due, and waits until they have sent it. */
async function deliver(...nodes: Dispatcher[]): Promise<void> {
  await Promise.all(nodes.map((node) => node.poll()));
  await Promise.all(nodes.map((node) => node.idle()));
}

async function addReceiver(changes: Partial<ReceiverRow> = {}): Promise<ReceiverRow> {
  const row: ReceiverRow = {
    ...{ id: "rcv_a", organizationId: null, name: "Ops", format: "webhook", target, kinds: null },
    ...{ secrets: [{ secret: SECRET, endsAtMs: null }], createdAtMs: 1, failingSinceMs: null, disabledAtMs: null },
    ...changes,
  };
  const subject = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
  const change = { action: "test", organizationId: null, subjectId: null, before: null, after: null };
  await store.events.insertReceiver(row, { id: row.id, madeAtMs: 1, ...subject, ...change });
  return row;
}

async function emit(count = 1, kind: EventKind = "credits.low", organizationId: string | null = ORGANIZATION) {
  const data = { percent: 20, threshold: 20, credits_left: 19.5, last_top_up: 100 };
  const rows = Array.from({ length: count }, (_, index) =>
    eventOf(kind, { organizationId, nowMs, period: [nowMs, index] }, data),
  );
  await store.events.insertEvents(rows);
  return rows;
}

const everything = { organizationId: null, receiverId: null, state: null, before: null, limit: 500 };
async function states(): Promise<EventDelivery["delivery"][]> {
  return (await store.events.deliveries(everything)).map(({ delivery }) => delivery);
}
const idsOf = (requests: Received[]) => requests.map(({ headers }) => headers["webhook-id"]);
function verify({ body, headers }: Received, secret = SECRET): unknown {
  const timestamp = Number(headers["webhook-timestamp"]);
  // The library compares with the clock of the machine.
  const shift = { "webhook-timestamp": String(timestamp) };
  const original = Date.now;
  Date.now = () => timestamp * 1000;
  try {
    return new Webhook(secret).verify(body, { ...(headers as Record<string, string>), ...shift });
  } finally {
    Date.now = original;
  }
}

describe("a webhook", () => {
  test("receives a signed event that the library of Standard Webhooks accepts", async () => {
    await addReceiver();
    await emit();
    await deliver(dispatcherOf());
    expect(received).toHaveLength(1);
    const [first] = received as [Received];
    expect(verify(first)).toEqual({
      type: "credits.low",
      timestamp: new Date(START_MS).toISOString(),
      data: { organization_id: ORGANIZATION, percent: 20, threshold: 20, credits_left: 19.5, last_top_up: 100 },
    });
    expect(first.headers["webhook-id"]).toMatch(/^evt_[0-9a-z]+$/);
    expect(() => verify({ ...first, body: first.body.replace("19.5", "99.5") })).toThrow("No matching signature");
    expect(await states()).toMatchObject([{ state: "delivered", attempts: 1, result: "HTTP 204" }]);
  });

  test("is signed with each secret that has not ended", async () => {
    const [old, older] = [1, 2].map((byte) => makeSigningSecret((count) => new Uint8Array(count).fill(byte)));
    const secrets = [
      { secret: SECRET, endsAtMs: null },
      { secret: old ?? "", endsAtMs: START_MS + 1 },
      { secret: older ?? "", endsAtMs: START_MS },
    ];
    await addReceiver({ secrets });
    await emit();
    await deliver(dispatcherOf());
    const [first] = received as [Received];
    for (const secret of [SECRET, old]) expect(verify(first, secret)).toMatchObject({ type: "credits.low" });
    expect(() => verify(first, older)).toThrow("No matching signature");
  });

  test("in Slack's format contains a text with the organization's name", async () => {
    await addReceiver({ format: "slack" });
    await emit();
    await deliver(dispatcherOf());
    const text = "Acme: 19.5 credits are left, which is not more than 20 % of the last top-up of 100 credits.";
    expect(JSON.parse(received[0]?.body ?? "")).toEqual({ text });
  });

  test("in Slack's format mentions nobody and links nowhere, whatever names it contains", async () => {
    const organization = { id: "org_b", name: "<!channel> <https://evil.example|A&B>", kind: "standard" } as const;
    await store.accounts.insertOrganization({ ...organization, createdAtMs: 1 });
    await addReceiver({ format: "slack", organizationId: null });
    await emit(1, "receiver.test", organization.id);
    await deliver(dispatcherOf());
    const text = "&lt;!channel&gt; &lt;https://evil.example|A&amp;B&gt;: This is a test event.";
    expect(JSON.parse(received[0]?.body ?? "")).toEqual({ text });
  });

  test("receives the kinds and the organization that it names; one of the service receives those of all", async () => {
    await addReceiver({ id: "rcv_own", organizationId: ORGANIZATION });
    await addReceiver({ id: "rcv_kind", organizationId: ORGANIZATION, kinds: ["budget.used"] });
    await addReceiver({ id: "rcv_other", organizationId: "org_other" });
    await addReceiver({ id: "rcv_disabled", disabledAtMs: 1 });
    await addReceiver({ id: "rcv_service", organizationId: null });
    await emit(1);
    await emit(1, "receiver.test", null);
    await deliver(dispatcherOf());
    const receivers = (await states()).map(({ receiverId }) => receiverId);
    expect(receivers.toSorted()).toEqual(["rcv_own", "rcv_service", "rcv_service"]);
  });

  test("of the service receives a change of a model once, not for each organization that it concerns", async () => {
    for (const organizationId of [null, ORGANIZATION, "org_b"]) {
      await addReceiver({ id: `rcv_${organizationId}`, organizationId });
      await emit(1, "model.shutdown", organizationId);
    }
    await deliver(dispatcherOf());
    expect((await states()).map(({ receiverId }) => receiverId).toSorted()).toEqual([
      "rcv_null",
      `rcv_${ORGANIZATION}`,
      "rcv_org_b",
    ]);
  });
});

test("all events of a minute are one mail, which is sent when the minute has ended, and again together", async () => {
  await addReceiver({ format: "mail", target: "ops@example.com" });
  const sent: number[] = [];
  const send: Sender["send"] = async (_, messages) => {
    sent.push(messages.length);
    return { isDelivered: sent.length > 1, result: "250 Ok" };
  };
  const node = dispatcherOf({}, { itemsMax: 100, isDigest: true, send, close: async () => {} });
  for (let second = 0; second < 60; second += 1) {
    await emit(1);
    await deliver(node);
    nowMs += 1_000;
  }
  expect(sent).toEqual([]);
  await deliver(node);
  nowMs += 5_000;
  await deliver(node);
  expect(sent).toEqual([60, 60]);
});

describe("a receiver that fails", () => {
  test("gets every event after an hour without an answer, with the same ids", async () => {
    await addReceiver();
    const node = dispatcherOf();
    answer = (response) => response.destroy();
    for (let minute = 0; minute < 60; minute += 1) {
      await emit(1);
      await deliver(node);
      nowMs += 60_000;
    }
    const attempted = new Set(idsOf(received));
    expect(attempted.size).toBe(60);
    expect((await store.events.receiver("rcv_a"))?.failingSinceMs).toBe(START_MS);
    received = [];
    answer = (response) => response.writeHead(200).end("thanks");
    for (let hours = 0; hours < 12; hours += 1) {
      // At most 10 of a receiver are sent at once.
      for (let turns = 0; turns < 7; turns += 1) await deliver(node);
      nowMs += 3_600_000;
    }
    expect(new Set(idsOf(received))).toEqual(attempted);
    expect(received).toHaveLength(60);
    expect((await store.events.receiver("rcv_a"))?.failingSinceMs).toBeNull();
  });

  test("is tried again at the documented times, and then no more", async () => {
    await addReceiver();
    await emit();
    const node = dispatcherOf();
    answer = (response) => response.writeHead(500).end("no");
    for (const afterMs of RETRY_AFTER_MS) {
      await deliver(node);
      nowMs += afterMs - 1;
      const { length } = received;
      await deliver(node);
      expect(received).toHaveLength(length);
      nowMs += 1;
    }
    await deliver(node);
    expect(received).toHaveLength(RETRY_AFTER_MS.length + 1);
    expect(new Set(idsOf(received)).size).toBe(1);
    expect(await states()).toMatchObject([{ state: "failed", attempts: 8, result: "HTTP 500" }]);
  });

  test("is disabled after 5 days, with a notice to the other receivers", async () => {
    await addReceiver();
    await addReceiver({ id: "rcv_service", organizationId: null, kinds: ["receiver.disabled"] });
    const node = dispatcherOf();
    answer = (response) => response.writeHead(received.at(-1)?.body.includes("receiver.disabled") ? 200 : 503).end();
    await emit();
    await deliver(node);
    nowMs += DISABLED_AFTER_MS;
    await emit();
    await deliver(node);
    await deliver(node);
    expect((await store.events.receiver("rcv_a"))?.disabledAtMs).toBe(nowMs);
    const notice = { receiver_id: "rcv_a", name: "Ops", last_result: "HTTP 503" };
    expect(verify(received.at(-1) as Received)).toMatchObject({ type: "receiver.disabled", data: notice });
    await emit(1, "budget.used");
    await deliver(node);
    expect(received.at(-1)?.body).toContain("receiver.disabled");
  });

  test("is slow: the attempt ends, and another receiver does not wait for it", async () => {
    await addReceiver({ id: "rcv_slow", target: `${target}?slow` });
    answer = () => {};
    await emit();
    const node = dispatcherOf({ timeoutMs: 300 });
    await node.poll();
    await addReceiver({ id: "rcv_quick" });
    await expect.poll(() => received.length).toBe(1);
    answer = (response) => response.writeHead(204).end();
    await emit(1, "budget.used");
    await node.poll();
    await node.idle();
    const results = (await states()).map(({ receiverId, result }) => [receiverId, result]);
    expect(results).toContainEqual(["rcv_quick", "HTTP 204"]);
    expect(results).toContainEqual(["rcv_slow", "no answer within 0.3 s"]);
  });

  test("is one of many slow ones of an organization, which leave room for the receivers of others", async () => {
    const slow = [ORGANIZATION, "org_b"].flatMap((organizationId) =>
      Array.from({ length: 20 }, (_, index) => ({ id: `rcv_${organizationId}_${index}`, organizationId })),
    );
    for (const one of slow) await addReceiver(one);
    await addReceiver({ id: "rcv_quick", organizationId: "org_c" });
    for (const organizationId of [ORGANIZATION, "org_b", "org_c"]) await emit(1, "credits.low", organizationId);
    const begun: (string | null)[] = [];
    const send: Sender["send"] = ({ organizationId }, _, signal) => {
      begun.push(organizationId);
      const result = { isDelivered: false, result: "stopped" };
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve(result)));
    };
    await dispatcherOf({}, { itemsMax: 10, isDigest: false, send, close: async () => {} }).poll();
    await expect.poll(() => begun.length, { timeout: 60_000 }).toBeGreaterThanOrEqual(17);
    const counts = Map.groupBy(begun, (organizationId) => organizationId);
    expect([...counts].map(([id, { length }]) => [id, length]).toSorted()).toEqual([
      [ORGANIZATION, 8],
      ["org_b", 8],
      ["org_c", 1],
    ]);
  });

  test("redirects, which is not followed, or answers without end, which is cut", async () => {
    await addReceiver();
    const node = dispatcherOf();
    answer = (response) => response.writeHead(302, { location: target }).end();
    await emit();
    await deliver(node);
    expect([received.length, (await states())[0]?.result]).toEqual([1, "HTTP 302"]);
    answer = (response) => {
      response.writeHead(200);
      response.on("close", () => clearInterval(timer));
      const timer = setInterval(() => response.write("x".repeat(65_536)), 1);
    };
    nowMs += 5_000;
    await deliver(node);
    expect((await states())[0]).toMatchObject({ state: "delivered", result: "HTTP 200" });
  });
});

describe("several nodes", () => {
  test("send each event once while all live, also when they look at the same time", async () => {
    await addReceiver();
    const nodes = [dispatcherOf(), dispatcherOf(), dispatcherOf()];
    const rows = await emit(40);
    for (let turns = 0; turns < 8; turns += 1) await deliver(...nodes);
    expect(new Set(idsOf(received)).size).toBe(rows.length);
    expect(received).toHaveLength(rows.length);
  });

  test("a node takes over the delivery of one that died after it had claimed it", async () => {
    await addReceiver();
    await emit();
    answer = () => {};
    const dying = dispatcherOf();
    await dying.poll();
    await expect.poll(() => received.length).toBe(1);
    await dying.stop();
    answer = (response) => response.writeHead(204).end();
    const node = dispatcherOf();
    await deliver(node);
    expect(received).toHaveLength(1);
    nowMs += 60_000;
    await deliver(node);
    expect(idsOf(received)).toEqual([received[0]?.headers["webhook-id"], received[0]?.headers["webhook-id"]]);
    expect(await states()).toMatchObject([{ state: "delivered", attempts: 2 }]);
  });
});
