import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { EVENT_KINDS } from "../../src/api/admin/event-kinds.ts";
import type { RequestSum } from "../../src/stores/queries/usage.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { type RouteState, Watch, type WatchOptions } from "../../src/warnings/watch.ts";
import { grantOf } from "../stores/fixture.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const CREDIT = 1_000_000n;
const NOON_MS = Date.UTC(2026, 10, 20, 12, 10);
const TODAY_MS = Date.UTC(2026, 10, 20);
const ORGANIZATION = "org_a";

let directory: string;
let store: Store;
let nowMs: number;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tollgate-watch-"));
  store = await openSqliteStore({ dataDir: directory, role: "service" });
  nowMs = NOON_MS;
  await store.accounts.insertOrganization({ id: ORGANIZATION, name: "Acme", kind: "standard", createdAtMs: 1 });
});
afterEach(async () => {
  await store.close();
  await rm(directory, { recursive: true });
});

function watchOf(options: Partial<WatchOptions> = {}): Watch {
  return new Watch({
    ...{ rows: store.events, usage: store.usage, clock: () => nowMs, node: "node-a" },
    settings: () => ({ forecastDays: 7, tokenExpiryDays: 7, unusualFactor: 10 }),
    routes: () => [],
    models: () => [],
    deadLetters: async () => 0,
    outage: {
      failed: ({ err }: { err?: unknown }) => {
        throw err;
      },
      succeeded: () => {},
    },
    ...options,
  });
}

/** Returns the events so far, the newest first. */
async function told(): Promise<[string, Record<string, unknown>][]> {
  const rows = await store.events.unroutedEvents(1_000);
  return rows.filter(({ kind }) => kind !== "credits.low").map(({ kind, data }) => [kind, data]);
}

/** Stores what was spent in each of the last days. */
async function spent(creditsADay: bigint, days: number): Promise<void> {
  const counts = { requests: 1, errors: 0, inputTokens: 1, outputTokens: 1, providerCost: 0n, chargedWithCost: 0n };
  const row = { organizationId: ORGANIZATION, dimension: "model" as const, name: "m", charged: creditsADay * CREDIT };
  for (let day = 1; day <= days; day += 1) {
    const atMs = TODAY_MS - day * DAY_MS;
    await store.usage.finishDay(atMs, [{ ...row, day: atMs, ...counts }], NOON_MS);
  }
}

const grant = (credits: bigint) => store.books.apply("durable", [grantOf(ORGANIZATION, credits * CREDIT)]);
const inHour = (credits: bigint): WatchOptions["usage"] => ({
  requests: async () => [{ organizationId: ORGANIZATION, charged: credits * CREDIT } as RequestSum],
});

test("docs/warnings.md lists every kind of event", async () => {
  const page = await readFile(new URL("../../docs/warnings.md", import.meta.url), "utf8");
  const [, table = ""] = /## Kinds of events(.*?)\n## /s.exec(page) ?? [];
  const rows = [...table.matchAll(/^\| (`.*?`) \|/gm)].flatMap(([, cell = ""]) => cell.replaceAll("`", "").split(", "));
  expect(rows.toSorted()).toEqual(EVENT_KINDS.toSorted());
});

test("a forecast is told once by several nodes, and again after a top-up", async () => {
  await spent(10n, 7);
  await grant(65n);
  for (const watch of [watchOf(), watchOf(), watchOf()]) await watch.run();
  const first = ["credits.forecast", { organization_id: ORGANIZATION, days_left: 6.5, credits_left: 65 }];
  expect(await told()).toEqual([first]);
  await grant(3n);
  nowMs += HOUR_MS;
  await watchOf().run();
  expect(await told()).toEqual([first, ["credits.forecast", expect.objectContaining({ credits_left: 68 })]]);
});

test("credits that last longer, and an organization without charges, are not told of", async () => {
  await grant(100n);
  await watchOf().run();
  await spent(10n, 7);
  await watchOf({ settings: () => ({ forecastDays: 9, tokenExpiryDays: 7, unusualFactor: 10 }) }).run();
  expect(await told()).toEqual([]);
});

test("an hour above a multiple of the usual is told of once, if what is usual is known", async () => {
  await grant(10_000n);
  await spent(24n, 2);
  await watchOf({ usage: inHour(500n) }).run();
  expect(await told()).toEqual([]);
  await spent(24n, 7);
  await watchOf({ usage: inHour(10n) }).run();
  expect(await told()).toEqual([]);
  for (const watch of [1, 2].map(() => watchOf({ usage: inHour(11n) }))) await watch.run();
  const hour = "2026-11-20T11:00:00.000Z";
  expect(await told()).toEqual([
    ["usage.unusual", { organization_id: ORGANIZATION, hour, spent: 11, usual: 1, factor: 10 }],
  ]);
});

test("a token that expires is told of once, unless it was revoked or replaced", async () => {
  const token = (id: string, expiresAtMs: number | null) => ({
    ...{ id, organizationId: ORGANIZATION, name: id, prefix: id, scopes: [], models: null, limits: null },
    ...{ hash: Buffer.from(id), createdAtMs: 1, expiresAtMs, revokedAtMs: null, lastUsedAtMs: null },
    ...{ successorId: null, ...({ kind: "secret", createdBy: null, pinned: null } as const), callerId: id },
  });
  const soonMs = NOON_MS + 6 * DAY_MS;
  const tokens = [
    token("tok_soon", soonMs),
    token("tok_later", NOON_MS + 8 * DAY_MS),
    token("tok_never", null),
    token("tok_over", NOON_MS - 1),
    { ...token("tok_revoked", soonMs), revokedAtMs: 2 },
  ];
  for (const row of tokens) await store.accounts.insertToken(row, null);
  for (const watch of [watchOf(), watchOf()]) await watch.run();
  const expected = { token_id: "tok_soon", name: "tok_soon", expires_at: new Date(soonMs).toISOString() };
  expect(await told()).toEqual([["token.expiring", { organization_id: ORGANIZATION, ...expected }]]);
});

const up = (model: string): RouteState => {
  return { provider: "a", model, state: "closed", lastFailure: { atMs: nowMs - 2 }, lastSuccessAtMs: nowMs - 1 };
};
const down = (model: string): RouteState => ({ ...up(model), state: "open", lastFailure: { atMs: nowMs } });
const toldRoutes = async () => (await told()).map(([kind, { route }]) => `${kind} ${route}`);

test("a route is told of once by three nodes when it is down, and once when it is up again", async () => {
  let routes: RouteState[] = [];
  const nodes = [1, 2, 3].map(() => watchOf({ routes: () => routes }));
  const look = async () => {
    await Promise.all(nodes.map((node) => node.run()));
    nowMs += 60_000;
    await Promise.all(nodes.map((node) => node.run()));
    nowMs += 60_000;
  };
  await look();
  expect(await told()).toEqual([]);
  for (routes of [[down("b")], [up("b")], [down("b"), down("c")]]) await look();
  expect(await toldRoutes()).toEqual(["route.down a/b", "route.up a/b", "route.down a/b", "route.down a/c"]);
});

test("after a restart, a route that was down is up again once a call succeeds, and not before", async () => {
  let routes = [down("b")];
  await watchOf({ routes: () => routes }).run();
  const restarted = watchOf({ routes: () => routes });
  for (routes of [[], [{ ...up("b"), lastSuccessAtMs: null }], [{ ...up("b"), lastFailure: { atMs: nowMs } }]]) {
    await restarted.run();
    expect(await toldRoutes()).toEqual(["route.down a/b"]);
  }
  routes = [up("b")];
  for (const _ of [1, 2]) await restarted.run();
  expect(await toldRoutes()).toEqual(["route.down a/b", "route.up a/b"]);
});

test("a route that is up from the start is not told of", async () => {
  await watchOf({ routes: () => [up("b")] }).run();
  expect(await toldRoutes()).toEqual([]);
});

test("the end of a failure is reported with the next look, not only in the next hour", async () => {
  const reported: string[] = [];
  const outage = { failed: () => void reported.push("failed"), succeeded: () => void reported.push("succeeded") };
  let deadLetters = async () => 0;
  const watch = watchOf({ outage, deadLetters: () => deadLetters() });
  await watch.run();
  deadLetters = async () => {
    throw new Error("the file cannot be read");
  };
  await watch.run();
  deadLetters = async () => 0;
  await watch.run();
  expect(reported).toEqual(["succeeded", "failed", "succeeded"]);
});

test("dead letters are told of by node and number, models before they are shut down", async () => {
  const models = ["2026-11-19", "2026-12-20", "2026-12-21"].map((shutdownDate, index) => {
    return { id: `m/${index}`, shutdownDate, replacement: "m/new" };
  });
  for (const node of ["node-a", "node-b", "node-b"]) {
    await watchOf({ node, deadLetters: async () => 2, models: () => models }).run();
  }
  expect((await told()).toSorted()).toEqual([
    ["ledger.dead_letter", { organization_id: null, node: "node-a", entries: 2 }],
    ["ledger.dead_letter", { organization_id: null, node: "node-b", entries: 2 }],
    ["model.shutdown", { organization_id: null, model: "m/1", date: "2026-12-20", replacement: "m/new" }],
  ]);
});
