/**
 * `node bench/console.ts`: how fast the console's figures and lists come from a store with a history. Fills a new store with
 * organizations, tokens and the requests of 30 days, sums up their days as a service does, and sends the console's queries.
 * Options: --store sqlite|postgres (one of its own), --requests, --organizations, --tokens, --asks; --data-dir keeps a filled store
 * of SQLite there and uses it again.
 */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import pg from "pg";
import { directoryOver } from "../src/admin/directory.ts";
import { DAY_MS, dayStart } from "../src/api/time.ts";
import { Overviews } from "../src/reports/overview.ts";
import { ANY_REQUEST, conversationsOver, type RequestListing, requestsOver } from "../src/reports/requests.ts";
import { UsageDays } from "../src/reports/usage-days.ts";
import { openStore } from "../src/stores/open.ts";
import { pastPartitions } from "../test/support/bulk.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";

const DAYS = 30;
const { values } = parseArgs({
  options: {
    requests: { type: "string", default: "1000000" },
    organizations: { type: "string", default: "1000" },
    tokens: { type: "string", default: "10000" },
    asks: { type: "string", default: "100" },
    store: { type: "string", default: "sqlite" },
    "data-dir": { type: "string" },
  },
});
const [requestCount, organizations, tokens, asks] = [
  values.requests,
  values.organizations,
  values.tokens,
  values.asks,
].map(Number) as [number, number, number, number];

const firstMsOfHistory = () => dayStart(Date.now()) - (DAYS - 1) * DAY_MS;

/** Rows by number, in SQL that both stores know; `n` counts from 0. */
const requestTime = (firstMs: number) =>
  `(${firstMs} + CAST(n % ${Math.ceil(requestCount / organizations)} AS bigint) * ${stepMs(firstMs)})`;
const requestId = (hex: (number: string, digits: number) => string, firstMs: number) => {
  const time = hex(requestTime(firstMs), 12);
  return `substr(${time}, 1, 8) || '-' || substr(${time}, 9, 4) || '-7000-8000-' || ${hex("n", 12)}`;
};
const stepMs = (firstMs: number) => Math.floor((Date.now() - firstMs) / Math.ceil(requestCount / organizations));

function statements(hex: (number: string, digits: number) => string, series: (count: number) => string): string[] {
  const firstMs = firstMsOfHistory();
  const organization = `'org_' || ${hex("n", 8)}`;
  const perOrganization = Math.ceil(requestCount / organizations);
  const owner = `CAST(n / ${perOrganization} AS bigint)`;
  const atMs = requestTime(firstMs);
  const released = "n % 50 = 0";
  const request = {
    organization_id: `'org_' || ${hex(owner, 8)}`,
    id: requestId(hex, firstMs),
    token_id: `'tok_' || ${hex(`${owner} + ${organizations} * (n % ${Math.max(1, Math.floor(tokens / organizations))})`, 8)}`,
    request_id: "'req_' || n",
    model: "'model/' || (n % 7)",
    upstream: "'upstream/' || (n % 7)",
    charge: `'i' || CASE WHEN ${released} THEN '' ELSE CAST(50 + n % 900 AS text) END || '@1000000 c@0 w@0'`,
    input_tokens: `CASE WHEN ${released} THEN 0 ELSE 50 + n % 900 END`,
    output_tokens: "0",
    amount: "1000",
    cost: `CASE WHEN ${released} THEN 0 ELSE 50 + n % 900 END`,
    shortfall: "0",
    draws: "'[]'",
    basis: `CASE WHEN ${released} THEN NULL ELSE 'reported' END`,
    ending: `CASE WHEN ${released} THEN 'released' ELSE 'complete' END`,
    made_at: atMs,
    ended_at: `${atMs} + 500`,
    is_late: "0",
    is_streamed: "1",
    first_token_ms: "50 + n % 3000",
    failure: `CASE WHEN ${released} THEN 'upstream_error' END`,
  };
  return [
    `INSERT INTO organization (id, name, kind, created_at) SELECT ${organization}, 'Organization ' || n, 'standard', ${firstMs} + n FROM ${series(organizations)}`,
    `INSERT INTO balance (organization_id, granted, available, held, spent, expired) SELECT ${organization}, 100000000, 100000000, 0, 0, 0 FROM ${series(organizations)}`,
    `INSERT INTO token (organization_id, id, name, kind, hash, prefix, scopes, created_at, caller_id) SELECT 'org_' || ${hex(`n % ${organizations}`, 8)}, 'tok_' || ${hex("n", 8)}, 'Token ' || n, 'secret', HASH, 'sk-tg-', '[]', ${firstMs} + n, 'tok_' || ${hex("n", 8)} FROM ${series(tokens)}`,
    `INSERT INTO request (${Object.keys(request).join(", ")}) SELECT ${Object.values(request).join(", ")} FROM ${series(requestCount)}`,
  ];
}

async function fill(dataDir: string, url: string | undefined): Promise<void> {
  if (url === undefined) {
    const database = new DatabaseSync(join(dataDir, "tollgate.db"));
    database.exec("PRAGMA synchronous = OFF");
    const series = (count: number) =>
      `(WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n + 1 < ${count}) SELECT n FROM s)`;
    const texts = statements((number, digits) => `printf('%0${digits}x', ${number})`, series);
    for (const text of texts) database.exec(text.replace("HASH", "randomblob(32)"));
    database.close();
    return;
  }
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  for (const text of pastPartitions(firstMsOfHistory())) await client.query(text);
  const series = (count: number) => `generate_series(0, ${count - 1}) AS s (n)`;
  const texts = statements((number, digits) => `lpad(to_hex(${number}), ${digits}, '0')`, series);
  for (const text of texts) await client.query(text.replace("HASH", "decode(md5(n::text) || md5(n::text), 'hex')"));
  await client.query("ANALYZE");
  await client.end();
}

async function measure(name: string, ask: () => Promise<unknown>): Promise<void> {
  const took: number[] = [];
  for (let asked = 0; asked < asks; asked += 1) {
    const startedMs = performance.now();
    await ask();
    took.push(performance.now() - startedMs);
  }
  const first = took[0] ?? 0;
  took.sort((a, b) => a - b);
  const at = (share: number) => (took[Math.ceil(share * took.length) - 1] ?? 0).toFixed(1);
  console.log(`${name.padEnd(34)} first ${first.toFixed(1)} ms, p50 ${at(0.5)} ms, p95 ${at(0.95)} ms`);
}

const dataDir = values["data-dir"] ?? mkdtempSync(join(tmpdir(), "tollgate-console-"));
const isFilled = existsSync(join(dataDir, "tollgate.db"));
const server = values.store === "postgres" ? await makePostgresServer() : undefined;
const open = () =>
  openStore({ database: server?.url ?? null, dataDir, role: "service", creates: true, clock: Date.now });
await (await open()).close();
if (!isFilled) await fill(dataDir, server?.url);
const store = await open();
try {
  const days = new UsageDays({ rows: store.usage, books: store.books, clock: Date.now, log: console });
  const overviews = new Overviews({
    rows: store.usage,
    refusals: store.refusals,
    days,
    clock: Date.now,
    perDollar: () => "1",
  });
  const startedMs = performance.now();
  await days.sumUp();
  console.log(
    `${store.kind}: ${requestCount} requests, days summed up in ${((performance.now() - startedMs) / 1000).toFixed(1)} s`,
  );
  const toDay = dayStart(Date.now());
  const range = { forOperator: true, fromDay: toDay - (DAYS - 1) * DAY_MS, toDay };
  const one = "org_00000007";
  await measure("overview of all", () => overviews.overview({ organizationId: null, ...range }));
  await measure("overview of all, 29 days", () =>
    overviews.overview({ organizationId: null, ...range, fromDay: range.fromDay + DAY_MS }),
  );
  await measure("overview of one organization", () => overviews.overview({ organizationId: one, ...range }));
  await measure("margins by organization, all", () =>
    overviews.margins({ organizationId: null, ...range, by: "organization" }),
  );
  await measure("latencies of a model", () => overviews.latencies({ model: "model/3", ...range }));
  const live = { config: { conversations: { keepDays: 1 } } };
  const conversations = conversationsOver({ rows: store.conversations, live, clock: Date.now });
  const requests = requestsOver({ holds: store.requests, refusals: store.refusals, conversations });
  const any: RequestListing = { ...ANY_REQUEST, order: "newest", cursor: null, limit: 50 };
  const month = { ...any, fromMs: range.fromDay, toMs: toDay + DAY_MS };
  const day = { ...any, fromMs: toDay - DAY_MS, toMs: toDay };
  await measure("requests of all", () => requests.list(any));
  await measure("requests of one organization", () => requests.list({ ...any, organizationId: one }));
  await measure("requests that failed", () => requests.list({ ...any, status: "failed" }));
  await measure("a request that is not there", () => requests.list({ ...any, requestId: "none" }));
  await measure("a day by charge, all", () => requests.list({ ...day, order: "charged" }));
  await measure("a month by charge, one organization", () =>
    requests.list({ ...month, organizationId: one, order: "charged" }),
  );
  await measure("a month by charge, all, one page", () => requests.list({ ...month, order: "charged" }));
  await measure("a rare error of a month, all", () => requests.list({ ...month, failure: "none" }));
  await measure("a day by token, all", () => requests.sums(day, { by: "token" }, null));
  await measure("a day by hour, all", () => requests.sums(day, { by: "hour" }, null));
  await measure("a month by model, one organization", () =>
    requests.sums({ ...month, organizationId: one }, { by: "model" }, null),
  );
  await measure("a month by token, all, one page", () => requests.sums(month, { by: "token" }, null));
  const directory = directoryOver({ rows: store.directory, clock: Date.now });
  const page = { search: null, status: null, cursor: null, limit: 50 };
  await measure("a request by the provider's id", () => store.requests.idOfProviderResponse("none"));
  await measure("organizations", () => directory.organizations(page));
  await measure("tokens, searched", () =>
    directory.tokens({ ...page, createdBy: null, search: "99", organizationId: null }),
  );
} finally {
  await store.close();
  await server?.remove();
  if (values["data-dir"] === undefined) rmSync(dataDir, { recursive: true, force: true });
}
