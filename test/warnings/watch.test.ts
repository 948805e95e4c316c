import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { eventText } from "../../src/admin/event-texts.ts";
import { EVENT_KINDS } from "../../src/api/admin/event-kinds.ts";
import { isoTime } from "../../src/api/time.ts";
import { buildCatalog, type CatalogSources } from "../../src/catalog/build.ts";
import type { ModelSettings } from "../../src/catalog/configured.ts";
import { providersOfKeys } from "../../src/catalog/known-providers.ts";
import { LiveCatalog } from "../../src/catalog/live.ts";
import { eventOf } from "../../src/credits/warnings.ts";
import type { RequestSum } from "../../src/stores/queries/usage.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { Watch, type WatchOptions } from "../../src/warnings/watch.ts";
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
    priceChanges: () => [],
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

/** Returns them by organization and model, those of the service first. */
async function toldInOrder(): Promise<[string, Record<string, unknown>][]> {
  const orderOf = ({ organization_id, model }: Record<string, unknown>) => `${organization_id ?? ""} ${model}`;
  return (await told()).toSorted(([, a], [, b]) => (orderOf(a) < orderOf(b) ? -1 : 1));
}

/** Stores what was spent in each of the last days. */
async function spent(creditsADay: bigint, days: number, organizationIds = [ORGANIZATION], name = "m"): Promise<void> {
  const counts = { requests: 1, errors: 0, inputTokens: 1, outputTokens: 1, providerCost: 0n, chargedWithCost: 0n };
  const row = { dimension: "model" as const, name, charged: creditsADay * CREDIT };
  for (let day = 1; day <= days; day += 1) {
    const atMs = TODAY_MS - day * DAY_MS;
    const rows = organizationIds.map((organizationId) => ({ ...row, organizationId, day: atMs, ...counts }));
    await store.usage.finishDay(atMs, rows, NOON_MS, []);
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

test("several nodes send a forecast once, and again after a top-up", async () => {
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

test("no forecast is sent for credits that last longer, or for an organization without charges", async () => {
  await grant(100n);
  await watchOf().run();
  await spent(10n, 7);
  await watchOf({ settings: () => ({ forecastDays: 9, tokenExpiryDays: 7, unusualFactor: 10 }) }).run();
  expect(await told()).toEqual([]);
});

test("an hour above a multiple of the usual spending is reported once, if the usual spending is known", async () => {
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

test("a token that expires is reported once, unless it was revoked or replaced", async () => {
  const token = (id: string, expiresAtMs: number | null) => ({
    ...{ id, organizationId: ORGANIZATION, name: id, prefix: id, scopes: [], models: null, limits: null },
    ...{ hash: Buffer.from(id), createdAtMs: 1, expiresAtMs, revokedAtMs: null, lastUsedAtMs: null },
    ...{
      successorId: null,
      ...({ kind: "secret", createdBy: null, rotatedBy: null, pinned: null } as const),
      callerId: id,
    },
  });
  const soonMs = NOON_MS + 6 * DAY_MS;
  const tokens = [
    token("tok_soon", soonMs),
    token("tok_later", NOON_MS + 8 * DAY_MS),
    token("tok_never", null),
    token("tok_over", NOON_MS - 1),
    { ...token("tok_revoked", soonMs), revokedAtMs: 2 },
    { ...token("tok_replaced", soonMs), successorId: "tok_later" },
  ];
  for (const row of tokens) await store.accounts.insertToken(row, null);
  for (const watch of [watchOf(), watchOf()]) await watch.run();
  const expected = { token_id: "tok_soon", name: "tok_soon", expires_at: new Date(soonMs).toISOString() };
  expect(await told()).toEqual([["token.expiring", { organization_id: ORGANIZATION, ...expected }]]);
});

type Route = ReturnType<WatchOptions["routes"]>[number];
const failedAt = (atMs: number) => ({ failure: "failed", at: isoTime(atMs) });
const up = (model: string, changes: Partial<Route["health"]> = {}): Route => {
  const times = { last_failure: failedAt(nowMs - 2), last_success_at: isoTime(nowMs - 1) };
  return { route: `a/${model}`, health: { state: "closed", ...times, ...changes } };
};
const down = (model: string) => up(model, { state: "open", last_failure: failedAt(nowMs) });
const toldRoutes = async () => (await told()).map(([kind, { route }]) => `${kind} ${route}`);

test("three nodes report a route once when it is down, and once when it is up again", async () => {
  let routes: Route[] = [];
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
  for (routes of [[], [up("b", { last_success_at: null })], [up("b", { last_failure: failedAt(nowMs) })]]) {
    await restarted.run();
    expect(await toldRoutes()).toEqual(["route.down a/b"]);
  }
  routes = [up("b")];
  for (const _ of [1, 2]) await restarted.run();
  expect(await toldRoutes()).toEqual(["route.down a/b", "route.up a/b"]);
});

test("a route that is up from the start is not reported", async () => {
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

test("a part that fails is looked at again in a minute, and keeps no other one from its hour", async () => {
  const looked: string[] = [];
  let isBroken = true;
  const watch = watchOf({
    outage: { failed: () => void looked.push("failed"), succeeded: () => void looked.push("succeeded") },
    settings: () => {
      looked.push("settings");
      if (isBroken) throw new Error("Spending and tokens cannot be looked at");
      return { forecastDays: 7, tokenExpiryDays: 7, unusualFactor: 10 };
    },
    models: () => {
      looked.push("models");
      return [];
    },
  });
  const look = async () => {
    await watch.run();
    return looked.splice(0);
  };
  const failures = ["settings", "failed", "settings", "failed"];
  expect(await look()).toEqual([...failures, "models"]);
  expect(await look()).toEqual(failures);
  isBroken = false;
  expect(await look()).toEqual(["settings", "settings", "succeeded"]);
  expect(await look()).toEqual(["succeeded"]);
  nowMs += HOUR_MS;
  expect(await look()).toEqual(["settings", "settings", "models", "succeeded"]);
});

test("dead letters are reported by node and number", async () => {
  for (const node of ["node-a", "node-b", "node-b"]) await watchOf({ node, deadLetters: async () => 2 }).run();
  expect((await told()).toSorted()).toEqual([
    ["ledger.dead_letter", { organization_id: null, node: "node-a", entries: 2 }],
    ["ledger.dead_letter", { organization_id: null, node: "node-b", entries: 2 }],
  ]);
});

type PriceSettings = NonNullable<ModelSettings["price"]>;

/** Returns a catalog of models with these prices. */
function catalogOf(prices: Record<string, PriceSettings>, more: Partial<CatalogSources> = {}): LiveCatalog {
  const models = Object.entries(prices).map(([id, price]) => {
    return { id, price, routes: [{ provider: "sandbox", model: "echo" }] };
  });
  const sources = { models, providers: providersOfKeys({}), credits: { perDollar: "1", markup: "0" }, ...more };
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const build = (_found: unknown, atMs: number) => {
    // It takes long, and another time can have other mistakes, such as an alias of a model that is shut down by then.
    if (atMs !== nowMs) throw new Error("Changes of prices are found without the catalog of another time");
    return buildCatalog(sources, atMs);
  };
  return new LiveCatalog({ build, clock: () => nowMs, log });
}

function watchOfCatalog(catalog: LiveCatalog): Watch {
  return watchOf({ models: () => catalog.list(), priceChanges: (untilMs) => catalog.priceChanges(untilMs) });
}

test("the shutdown of a model is reported once in advance, to the service and to its recent users", async () => {
  await spent(1n, 1);
  const shutdowns = { "m/1": "2026-11-19", "m/2": "2026-12-20", "m/3": "2026-12-21", m: "2026-11-20" };
  const models = Object.entries(shutdowns).map(([id, shutdownDate]) => {
    return { id, shutdownDate, replacement: "m/new" };
  });
  for (const _ of [1, 2, 3]) await watchOf({ models: () => models }).run();
  const event = (organization_id: string | null, model: string, date: string) => {
    return ["model.shutdown", { organization_id, model, date, replacement: "m/new" }];
  };
  expect(await toldInOrder()).toEqual([
    event(null, "m", "2026-11-20"),
    event(null, "m/2", "2026-12-20"),
    event(ORGANIZATION, "m", "2026-11-20"),
  ]);
});

test("several nodes report the next price change once, to the service and to the model's recent users", async () => {
  await spent(1n, 7);
  await store.accounts.insertOrganization({ id: "org_b", name: "Other", kind: "standard", createdAtMs: 1 });
  const dearer = { from: "2026-12-01", output: "3" };
  const prices = {
    m: [{ input: "1", output: "2" }, dearer, { from: "2026-12-02", input: "9" }],
    same: [{ input: "1", output: "2" }, { from: "2026-12-01" }],
    later: [
      { input: "1", output: "2" },
      { ...dearer, from: "2026-12-21" },
    ],
    past: [
      { input: "1", output: "2" },
      { ...dearer, from: "2026-11-20" },
    ],
    always: { input: "1", output: "2" },
  };
  const catalog = catalogOf(prices);
  for (const watch of [1, 2, 3].map(() => watchOfCatalog(catalog))) await watch.run();
  const data = { model: "m", date: "2026-12-01" };
  const first = [
    ["price.change", { ...data, organization_id: null, prices: { input: 1, output: 2 }, new_prices: { output: 3 } }],
    ["price.change", { ...data, organization_id: ORGANIZATION, price_list: null }],
  ];
  expect(await toldInOrder()).toMatchObject(first);
  nowMs = Date.UTC(2026, 11, 1, 1);
  await watchOfCatalog(catalog).run();
  expect(await toldInOrder()).toMatchObject([
    ["price.change", { model: "later", date: "2026-12-21", organization_id: null }],
    first[0],
    ["price.change", { model: "m", date: "2026-12-02", organization_id: null, new_prices: { input: 9, output: 3 } }],
    first[1],
  ]);
});

test("a price change in a price list is reported once, to the service and to the users of the model that have the list", async () => {
  await spent(1n, 7, [ORGANIZATION, "org_b"]);
  await spent(1n, 6, ["org_c", "org_e"], "other");
  const customers = { org_b: "half", org_c: "own", org_d: "own", org_e: null };
  for (const [id, priceList] of Object.entries(customers)) {
    await store.accounts.insertOrganization({ id, name: id, kind: "standard", createdAtMs: 1, priceList });
  }
  const base = { input: "2", output: "4" };
  const later = (output: string) => [base, { from: "2026-12-01", output }];
  const priceLists = {
    half: { factor: "0.5", prices: {} },
    own: { factor: "1", prices: { m: base, other: later("6") } },
  };
  const catalog = catalogOf({ m: later("8"), other: base }, { priceLists });
  for (const _ of [1, 2]) await watchOfCatalog(catalog).run();
  const found = (await told()).map(([, { organization_id, model, price_list, new_prices }]) =>
    [organization_id, model, price_list, (new_prices as { output: number }).output].join(" "),
  );
  const own = [" other own 6", "org_c other own 6"];
  expect(found.sort()).toEqual([" m  8", " m half 4", `${ORGANIZATION} m  8`, "org_b m half 4", ...own].sort());
});

test("a price that is corrected before it takes effect is reported again", async () => {
  for (const input of ["2", "2", "3"]) {
    await watchOfCatalog(
      catalogOf({
        m: [
          { input: "1", output: "2" },
          { from: "2026-12-01", input },
        ],
      }),
    ).run();
  }
  const inputs = (await told()).map(([, { new_prices }]) => (new_prices as { input: number }).input);
  expect(inputs.toSorted()).toEqual([2, 3]);
});

test("prices of long prompts and of calls can begin and end by a date", async () => {
  const [base, from] = [{ input: "1", output: "2" }, "2026-12-01"];
  const long = { abovePromptTokens: { "1000": { input: "3" } } };
  const prices = {
    call: [base, { from, perSearch: "0.01" }],
    begins: [base, { from, ...long }],
    ends: [
      { ...base, ...long },
      { from, abovePromptTokens: {} },
    ],
  };
  await watchOfCatalog(catalogOf(prices)).run();
  const tiered = { tiers: [expect.objectContaining({ above_prompt_tokens: 1000, input: 3 })] };
  const untiered = expect.not.objectContaining({ tiers: expect.anything() });
  const changes = (await toldInOrder()).map(([, { model, prices, new_prices }]) => [model, prices, new_prices]);
  expect(changes).toEqual([
    ["begins", untiered, expect.objectContaining(tiered)],
    ["call", expect.not.objectContaining({ searches: 0.01 }), expect.objectContaining({ searches: 0.01 })],
    ["ends", expect.objectContaining(tiered), untiered],
  ]);
});

test("a change of known prices is reported with its day", async () => {
  nowMs = Date.UTC(2026, 11, 20, 12, 10);
  await watchOfCatalog(catalogOf({}, { providers: providersOfKeys({ GEMINI_API_KEY: "key" }) })).run();
  const change = (await told()).find(([kind, { model }]) => kind === "price.change" && model === "gemini-3.6-flash");
  const [prices, new_prices] = [{ input: 0.75 }, { input: 1.5 }];
  expect(change).toMatchObject(["price.change", { date: "2027-01-01", prices, new_prices }]);
});

test("a change of prices is described by what changes", () => {
  const text = (prices: object, new_prices: object) => {
    const data = { model: "m", date: "2026-12-01", prices, new_prices };
    const period = ["m"];
    return eventText(eventOf("price.change", { organizationId: null, nowMs, period }, data), "Acme");
  };
  expect(text({ input: 1, cached_input: 0.5, output: 2 }, { input: 1, cached_input: 0.75, output: 3 })).toBe(
    "Acme: The prices of the model m change on 2026-12-01, in credits per million tokens or per call: " +
      "cached input from 0.5 to 0.75, output from 2 to 3.",
  );
  expect(text({ input: 1, tiers: [1] }, { input: 1, tiers: [2] })).toContain("call: those of long prompts.");
});
