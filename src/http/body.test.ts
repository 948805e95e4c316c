import fastify from "fastify";
import { expect, test } from "vitest";
import { startTestServer } from "../../test/support/server.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { FairBudget } from "../ledger/fair-budget.ts";
import { FairTurns } from "../ledger/fair-queue.ts";
import { ANONYMOUS, acceptBodies, BodyReservation, holdBody } from "./body.ts";
import type { ServerOptions } from "./server.ts";

test("The bodies of all unauthenticated callers take at most a sixteenth of the budget.", () => {
  const budget = new FairBudget(1_600);
  const anonymous = [ANONYMOUS, ANONYMOUS].map((owner) => new BodyReservation(budget, owner));
  const other = new BodyReservation(budget, "org_1");
  const taken = [anonymous[0]?.add(60), anonymous[1]?.add(40), anonymous[1]?.add(1), other.add(800), other.add(1)];
  expect(taken).toEqual([true, true, false, true, false]);
  for (const reservation of anonymous) {
    reservation.release();
    reservation.release();
  }
  expect(budget.used).toBe(800);
});

test("The body of a completion counts until the completion has ended, whether or not its client is connected.", () => {
  const budget = new FairBudget(1_000);
  const bodyReservation = new BodyReservation(budget, "org_1");
  bodyReservation.add(300);
  const request = { bodyReservation };
  const release = holdBody(request);
  // The hook that runs when the connection is closed finds nothing to release.
  expect(request.bodyReservation).toBeNull();
  expect(budget.used).toBe(300);
  release();
  expect(budget.used).toBe(0);
});

test("A request with a wrong bound of its cost returns its body's share of the budget.", async () => {
  const { url, server } = await startTestServer({ bodyLimitBytes: 4_096, bodiesInFlightBytes: 8_192 });
  const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "x".repeat(2_000) }] });
  const headers = { authorization: "Bearer t", "content-type": "application/json", "x-tollgate-max-cost": "much" };
  for (let sent = 0; sent < 8; sent += 1) {
    const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
    expect(await answer.json()).toMatchObject({ error: { param: "x-tollgate-max-cost" } });
  }
  await server.close({ delayMs: 0, drainMs: 0 });
});

test("A retry that gets its response again, or is refused before, returns its body's share of the budget.", async () => {
  const responseItems = {
    isOn: () => true,
    find: async () => new Map(),
    offer: async () => {},
    async take(_owner: object, _fingerprint: string, reserve: (bytes: number) => void) {
      reserve(1_000);
      return JSON.stringify({ input: [], response: { id: "resp_1", output: [] } });
    },
  };
  const admin = { responseItems } as unknown as ServerOptions["admin"];
  const { url, server } = await startTestServer({ bodyLimitBytes: 4_096, bodiesInFlightBytes: 8_192, admin });
  const body = JSON.stringify({ model: "m", input: "x".repeat(2_000) });
  const headers = { authorization: "Bearer t", "content-type": "application/json", "x-stainless-retry-count": "1" };
  const statuses: number[] = [];
  for (let sent = 0; sent < 12; sent += 1) {
    const answer = await fetch(`${url}/v1/responses`, { method: "POST", headers, body });
    await answer.text();
    statuses.push(answer.status);
  }
  // At most ten requests a minute are served.
  expect(statuses).toEqual([...Array(10).fill(200), 429, 429]);
  await server.close({ delayMs: 0, drainMs: 0 });
});

test("What is kept of long responses is parsed in the turn of the organization that continues them.", async () => {
  const longTasks = new FairTurns(1);
  const other = Promise.withResolvers<void>();
  void longTasks.run("org_other", () => other.promise);
  let reads = 0;
  const found = async (bytes: number, reserve: (bytes: number) => void) => {
    reads += 1;
    reserve(bytes);
    return new Map([["resp_1", JSON.stringify({ input: [], response: { output: [] } })]]);
  };
  let keptBytes = 0;
  const responseItems = {
    isOn: () => true,
    find: (_owner: object, _ids: readonly string[], reserve: (bytes: number) => void) => found(keptBytes, reserve),
  };
  const { url, server } = await startTestServer({
    admin: { responseItems } as unknown as ServerOptions["admin"],
    gateway: { longTasks } as unknown as Gateway,
  });
  const headers = { authorization: "Bearer t", "content-type": "application/json" };
  const body = JSON.stringify({ model: "m", input: "go on", previous_response_id: "resp_1" });
  const events: string[] = [];
  const ask = async (bytes: number) => {
    keptBytes = bytes;
    const { status } = await fetch(`${url}/v1/responses`, { method: "POST", headers, body });
    events.push(`${bytes}: ${status}`);
  };
  const long = ask(100_000);
  // A request whose kept items are short overtakes it.
  await expect.poll(() => reads).toBe(1);
  await ask(10_000);
  events.push("the turn of another organization ends");
  other.resolve();
  await long;
  expect(events).toEqual(["10000: 404", "the turn of another organization ends", "100000: 404"]);
  await server.close({ delayMs: 0, drainMs: 0 });
});

test("Of large bodies one chunk is read in a turn of the event loop, however many arrive at once.", async () => {
  const bodies = 6;
  const budget = new FairBudget(100_000_000);
  const chunks: { owner: string; turn: number }[] = [];
  let turn = 0;
  const taken = budget.take.bind(budget);
  budget.take = (owner, bytes) => {
    chunks.push({ owner, turn });
    return taken(owner, bytes);
  };
  const server = fastify();
  server.decorateRequest("bodyReservation", null).decorateRequest("caller", null);
  server.addHook("onRequest", async (request) => {
    request.caller = { principal: { organizationId: request.headers.owner } } as unknown as typeof request.caller;
  });
  acceptBodies(server, { bodyLimitBytes: 10_000_000, budget, turns: new FairTurns(1) });
  server.post("/", async () => "");
  const url = await server.listen();
  const count = () => {
    turn += 1;
    counting = setImmediate(count);
  };
  let counting = setImmediate(count);
  const body = JSON.stringify({ text: "x".repeat(1_000_000) });
  const send = async (index: number) => {
    const headers = { "content-type": "application/json", owner: `org_${index % 2}` };
    const { status } = await fetch(url, { method: "POST", headers, body });
    expect(status).toBe(200);
  };
  await Promise.all(Array.from({ length: bodies }, (_, index) => send(index)));
  clearImmediate(counting);
  await server.close();
  // The first chunk of each connection is read when it arrives.
  const turns = new Set(chunks.map((chunk) => chunk.turn));
  expect(chunks.length).toBeGreaterThan(4 * bodies);
  expect(chunks.length - turns.size).toBeLessThanOrEqual(bodies);
});
