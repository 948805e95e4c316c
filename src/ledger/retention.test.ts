import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, test } from "vitest";
import { bulkStatements } from "../../test/support/bulk.ts";
import { keepLog } from "../../test/support/log.ts";
import { STATEMENT_TERMS } from "../../test/support/month-digests.ts";
import { DAY_MS, isoMonth } from "../api/time.ts";
import { idAt } from "../credits/request-id.ts";
import { UsageDays } from "../reports/usage-days.ts";
import { openSqliteStore } from "../stores/sqlite/sqlite.ts";
import type { Store } from "../stores/store.ts";
import { Retention, type RetentionOptions, type RetentionSettings } from "./retention.ts";

const ORGANIZATION = "org_old";
const NOW_MS = Date.UTC(2026, 5, 20);
const REQUESTS = 1_200;
const clock = () => NOW_MS;

let dataDir: string;
let store: Store;
let beside: DatabaseSync;
let log: ReturnType<typeof keepLog>;

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "tollgate-retention-"));
  store = await openSqliteStore({ dataDir, role: "service", clock });
  await store.accounts.insertOrganization({ id: ORGANIZATION, name: "Old", kind: "standard", createdAtMs: 1 });
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  const grant = { organizationId: ORGANIZATION, grantId: "grant_1", amount: 10_000_000n, ...terms };
  await store.books.apply("durable", [{ kind: "grant", ...grant }]);
  beside = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
  // From 1 March on, one request in two hours: a hundred days.
  const from = { fromMs: Date.UTC(2026, 2, 1), stepMs: DAY_MS / 12 };
  for (const text of bulkStatements("sqlite", {
    ...from,
    organizationId: ORGANIZATION,
    grantId: "grant_1",
    count: REQUESTS,
  }))
    beside.exec(text);
  const audit = beside.prepare(
    "insert into audit_entry (id, made_at, actor_kind, action, checksum) values (?, ?, 'service', 'a', 0)",
  );
  for (let day = 0; day < 600; day += 1) {
    const atMs = NOW_MS - day * DAY_MS;
    audit.run(`${idAt(atMs)}-7000-8000-000000000000`, atMs);
  }
  log = keepLog();
});
afterEach(async () => {
  beside.close();
  await store.close();
  await rm(dataDir, { recursive: true });
});

const count = (table: string) => beside.prepare(`select count(*) as count from ${table}`).get()?.count;
const usageDays = () => new UsageDays({ rows: store.usage, books: store.books, clock, log });

type Limits = RetentionSettings["retention"];

function retentionOf(limits: Limits, options: Partial<RetentionOptions> = {}): Retention {
  const days = usageDays();
  return new Retention({
    store,
    live: {
      config: {
        retention: limits,
        conversations: { keepDays: 3 },
        responses: { keepHours: 24 },
        statements: STATEMENT_TERMS,
      },
    },
    isUsageSummedUp: (beforeMs) => days.isSummedUp(beforeMs),
    spooled: async () => 0,
    clock,
    now: () => performance.now(),
    log,
    ...options,
  });
}

async function run(limits: Limits, options: Partial<RetentionOptions> = {}): Promise<void> {
  const retention = retentionOf(limits, options);
  await retention.run();
  await retention.stop();
}

test("without a limit nothing is removed", async () => {
  await run({});
  expect([count("request"), count("audit_entry")]).toEqual([REQUESTS, 600]);
});

test("requests of old months become a sum, once their usage is stored and the spool is empty", async () => {
  const limits = { requestMonths: 1 };
  await run(limits);
  expect(count("request")).toBe(REQUESTS);
  await usageDays().sumUp();
  const usage = await usageDays().usage(ORGANIZATION, Date.UTC(2026, 2, 1), Date.UTC(2026, 5, 30));
  await run(limits, { spooled: async () => 1 });
  expect(count("request")).toBe(REQUESTS);
  await run(limits);
  // March and April have 61 days.
  expect(count("request")).toBe(REQUESTS - 61 * 12);
  expect(await store.closings.find(ORGANIZATION)).toMatchObject({
    beforeAtMs: Date.UTC(2026, 4, 1),
    requests: 61 * 12,
  });
  expect(await usageDays().usage(ORGANIZATION, Date.UTC(2026, 2, 1), Date.UTC(2026, 5, 30))).toEqual(usage);
  expect((await store.books.verify(ORGANIZATION)).violations).toEqual([]);
  await run(limits);
  expect(count("request")).toBe(REQUESTS - 61 * 12);
  expect([log.messages("warn"), log.messages("error")]).toEqual([[], []]);
});

test("the digests of closed months are stored before their rows are removed, and kept", async () => {
  await run({}, { spooled: async () => 1 });
  const digests = () => store.books.monthDigests(ORGANIZATION, { toMs: Date.UTC(2026, 5, 1) });
  const before = await digests();
  expect(before.map(({ month }) => isoMonth(month))).toEqual(["2026-03", "2026-04", "2026-05"]);
  beside.exec("delete from month_digest");
  await usageDays().sumUp();
  await run({ requestMonths: 1 });
  expect(count("request")).toBe(REQUESTS - 61 * 12);
  expect(await digests()).toEqual(before);
  expect((await store.books.verify(ORGANIZATION)).violations).toEqual([]);
});

test("no month is closed that has no digest", async () => {
  await usageDays().sumUp();
  const failing = async () => {
    throw new Error("the digest cannot be stored");
  };
  await run({ requestMonths: 1 }, { store: { ...store, monthDigests: { ...store.monthDigests, store: failing } } });
  expect(count("request")).toBe(REQUESTS);
  // Nothing is stored, as after the requests of the month were closed.
  const refused = async () => {};
  await run({ requestMonths: 1 }, { store: { ...store, monthDigests: { ...store.monthDigests, store: refused } } });
  expect(count("request")).toBe(REQUESTS);
  // By the clock of the store, the month is not over.
  const next = async () => ({ month: Date.UTC(2026, 3, 1), previous: undefined, isOver: false });
  await run({ requestMonths: 1 }, { store: { ...store, monthDigests: { ...store.monthDigests, next } } });
  expect(count("request")).toBe(REQUESTS);
  expect(await store.closings.find(ORGANIZATION)).toBeUndefined();
});

test("a plan counts what a run removes, by kind and up to its time", async () => {
  await usageDays().sumUp();
  const limits = { requestMonths: 1, auditDays: 10 };
  const plan = () => retentionOf(limits).plan();
  const audit = { kind: "audit_records", beforeMs: NOW_MS - 10 * DAY_MS };
  const requests = { kind: "requests", beforeMs: Date.UTC(2026, 4, 1) };
  const owner = { organizationId: "org_playground", callerId: "tok_1" };
  const item = { ...owner, answerId: "resp_1", bytes: 2, undelivered: null, content: "{}" };
  const [old, young] = [NOW_MS - 2 * DAY_MS, NOW_MS];
  const items = [old, young].map((keptAtMs) => ({ ...item, id: `msg_${keptAtMs}`, keptAtMs }));
  await store.responseItems.insert(owner, items);
  const kept = { kind: "response_items", beforeMs: NOW_MS - DAY_MS };
  const conversation = { organizationId: ORGANIZATION, request: "{}", answer: null, isTruncated: false };
  beside.prepare("update organization set keeps_conversations = 1 where id = ?").run(ORGANIZATION);
  await store.conversations.insert(
    [4, 2].map((days) => ({ ...conversation, holdId: `hold_${days}`, endedAtMs: NOW_MS - days * DAY_MS })),
  );
  const conversations = { kind: "conversations", beforeMs: NOW_MS - 3 * DAY_MS };
  expect(await plan()).toEqual([
    { ...requests, rows: 61 * 12 },
    { ...audit, rows: 600 - 11 },
    { ...kept, rows: 1 },
    { ...conversations, rows: 1 },
  ]);
  const tables = ["request", "audit_entry", "response_item", "conversation"];
  expect(tables.map(count)).toEqual([REQUESTS, 600, 2, 2]);
  await run(limits);
  expect(await plan()).toEqual([
    { ...requests, rows: 0 },
    { ...audit, rows: 0 },
    { ...kept, rows: 0 },
    { ...conversations, rows: 0 },
  ]);
  expect(["response_item", "conversation"].map(count)).toEqual([1, 1]);
  expect(await retentionOf({}).plan()).toEqual([
    { ...kept, rows: 0 },
    { ...conversations, rows: 0 },
  ]);
});

test("idempotency keys and refused requests are removed when they have expired", async () => {
  const key = beside.prepare("insert into idempotency_key values (?, 'tok_1', ?, 'f', ?, null, 1, ?)");
  const refusal = beside.prepare(
    "insert into refusal values (?, ?, 'tok_1', 'req_1', '/v1/embeddings', null, 429, 'code', 'text', 1, 1)",
  );
  for (let index = 0; index < 120; index += 1) {
    key.run(ORGANIZATION, `old ${index}`, `hold_${index}`, NOW_MS);
    refusal.run(ORGANIZATION, `${idAt(NOW_MS - 8 * DAY_MS)}-7000-8000-${String(index).padStart(12, "0")}`);
  }
  key.run(ORGANIZATION, "young", "hold_young", NOW_MS + 1);
  refusal.run(ORGANIZATION, `${idAt(NOW_MS - 6 * DAY_MS)}-7000-8000-000000000000`);
  await run({});
  expect(["idempotency_key", "refusal"].map(count)).toEqual([1, 1]);
});

test("a failure to remove rows of one kind does not keep the others", async () => {
  const removeOld = async () => {
    throw new Error("the table is locked");
  };
  const options = { store: { ...store, responseItems: { ...store.responseItems, removeOld } } };
  await run({ auditDays: 10 }, options);
  expect(count("audit_entry")).toBe(11);
  expect(log.messages("warn")).toHaveLength(1);
});

test("rows are removed while months are being closed", async () => {
  const { promise: closed, resolve: close } = Promise.withResolvers<string[]>();
  const monthDigests = {
    ...store.monthDigests,
    async *organizations() {
      yield* await closed;
    },
  };
  const retention = retentionOf({ auditDays: 10 }, { store: { ...store, monthDigests } });
  const runs = [retention.run()];
  await expect.poll(() => count("audit_entry")).toBe(11);
  beside.exec("insert into audit_entry (id, made_at, actor_kind, action, checksum) values ('0', 0, 'service', 'a', 0)");
  // A run that begins while the removal before it still pauses joins that one, which has read its rows already.
  const rowsAfterRun = () => {
    runs.push(retention.run());
    return count("audit_entry");
  };
  await expect.poll(rowsAfterRun).toBe(11);
  close([]);
  await Promise.all(runs);
  await retention.stop();
});

test("an organization whose requests violate an invariant keeps them, and the log says so", async () => {
  await usageDays().sumUp();
  beside.exec("update request set output_tokens = output_tokens + 1 where cost = 7");
  await run({ requestMonths: 1 });
  expect(count("request")).toBe(REQUESTS);
  expect(log.messages("error")).toEqual([
    "the old months of an organization could not be closed or removed, or its erasure not be repeated",
  ]);
});

test("an erasure that was interrupted is completed, and repeated for a week, without a write if nothing is left", async () => {
  // More than are changed at once.
  for (let index = 0; index < 250; index += 1) {
    const id = `tok_${String(index).padStart(3, "0")}`;
    beside.exec(`
      insert into token (organization_id, id, name, hash, prefix, scopes, created_at, caller_id, kind)
      values ('${ORGANIZATION}', '${id}', 'Ada', cast('${id}' as blob), 'tg_', '[]', 1, '${id}', 'secret')`);
  }
  beside.exec("update credit_grant set reference = 'Ada'; update organization set status = 'closed'");
  const actor = { actorKind: "operator", actorId: null, actorName: "admin", address: null, requestId: null } as const;
  const change = { action: "organization.erase", organizationId: ORGANIZATION, subjectId: ORGANIZATION };
  const audit = { id: "9", madeAtMs: NOW_MS, ...actor, ...change, before: null, after: null };
  expect(await store.erasure.mark(ORGANIZATION, NOW_MS, audit)).toBe(true);
  const names = () =>
    beside
      .prepare("select name from token union select reference from credit_grant order by 1")
      .all()
      .map(Object.values);
  expect(names()).toEqual([["Ada"]]);
  const atDays = (days: number) => run({}, { clock: () => NOW_MS + days * DAY_MS });
  await atDays(8);
  expect(names()).toEqual([["Ada"]]);
  await atDays(0);
  expect(names()).toEqual([[null], ["Erased"]]);
  beside.exec("update token set name = 'Ada' where id = 'tok_100'");
  await atDays(6);
  expect(names()).toEqual([[null], ["Erased"]]);
  const version = () => beside.prepare("pragma data_version").get();
  const before = version();
  await atDays(6);
  expect(version()).toEqual(before);
  expect([log.messages("warn"), log.messages("error")]).toEqual([[], []]);
});

test("audit records have a limit of their own", async () => {
  await run({ auditDays: 10 });
  expect([count("request"), count("audit_entry")]).toEqual([REQUESTS, 11]);
});
