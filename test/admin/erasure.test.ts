import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { v7 } from "uuid";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS, isoDay, monthStart } from "../../src/api/time.ts";
import { ALL_TABLES } from "../../src/stores/all-tables.ts";
import { AdminClient, operator, signIn } from "../support/admin.ts";
import { AUDIENCE, type Issuer, startIssuer } from "../support/issuer.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { freePort, MEMBER_SCOPES, makeDirectory, type RunningService, send, startService } from "../support/service.ts";

/** Is written into every field of an organization that takes text. */
const MARKER = "mark3r";
/** Columns in which the marker is found before the erasure, those of `request` before their retention. */
const MARKED = [
  ...["admin_idempotency_key.answer", "admin_session.person", "adjustment.note", "adjustment.reference"],
  ...["allowance.reference", "audit_entry.actor_name", "audit_entry.after", "audit_entry.before"],
  ...["audit_entry.written_rows", "budget.metadata", "budget.models", "budget.name", "budget_use.value"],
  ...[
    "conversation.answer",
    "conversation.request",
    "credit_grant.reference",
    "delivery.event_key",
    "event.data",
    "event.event_key",
  ],
  ...["idempotency_key.answer", "idempotency_key.key", "identity.name", "identity.subject"],
  ...["monthly_statement.details", "organization.contacts", "organization.external_id", "organization.name"],
  ...["organization.note", "receiver.name", "receiver.target", "refusal.message", "refusal.model"],
  ...["response_item.content", "token.name", "token.pinned", "top_up.card"],
];
const MARKED_REQUEST = ["request.budgets", "request.idempotency_key", "request.metadata"];
/** Those of `fill`: the budget covers two of its requests, and two name a model that does not exist. */
const [CONVERSATIONS, REFUSALS] = [2, 4];
/** Texts of an organization that remain, by table: ids, amounts, kinds, and names of the service's own. */
const REMAINING: Record<string, string> = {
  adjustment: "organization_id id kind draws grant_id",
  allowance: "organization_id id",
  balance: "organization_id",
  closing: "organization_id",
  closing_part: "organization_id dimension name",
  credit_grant: "organization_id id source state reference",
  month_digest: "organization_id digest",
  monthly_statement: "organization_id number_prefix digest details",
  organization: "id name kind status",
  refusal_day: "organization_id code",
  statement_balance: "organization_id",
  token: "organization_id id name prefix scopes successor_id caller_id kind",
  top_up: "organization_id status currency",
  usage_day: "organization_id dimension name",
  voucher: "organization_id id batch_id prefix",
};

type Row = Record<string, unknown>;
interface Tables {
  read(statement: string): Promise<Row[]>;
  close(): unknown;
}

function openSqlite(dataDir: string): Tables {
  const database = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
  return {
    read: async (statement) => database.prepare(statement).all(),
    close: () => database.isOpen && database.close(),
  };
}

async function openPostgres(connectionString: string): Promise<Tables> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  return { read: async (statement) => (await client.query(statement)).rows, close: () => client.end() };
}

/** Returns the columns in which the marker is, also in bytes. */
async function markedColumns({ read }: Tables): Promise<string[]> {
  const found = new Set<string>();
  for (const { name } of ALL_TABLES) {
    for (const row of await read(`select * from ${name}`)) {
      for (const [column, cell] of Object.entries(row)) {
        const text = cell instanceof Uint8Array ? Buffer.from(cell).toString("latin1") : String(cell);
        if (text.includes(MARKER)) found.add(`${name}.${column}`);
      }
    }
  }
  return [...found].sort();
}

describe.each(hasPostgres ? (["SQLite", "PostgreSQL"] as const) : (["SQLite"] as const))("%s", (store) => {
  let database: TestDatabase | undefined;
  let dataDir: string;
  let issuer: Issuer;
  let service: RunningService;
  let admin: AdminClient;
  let tables: Tables;
  let organizationId: string;
  let smtpPort: number;

  const config = (organization: string) => ({
    models: [
      {
        id: "priced",
        price: { input: 0, output: 0, perRequest: 0.02 },
        routes: [{ provider: "sandbox", model: "echo" }],
      },
    ],
    retention: { requestMonths: 1 },
    // No mail is sent: nothing listens at the port.
    warnings: { smtp: `smtp://127.0.0.1:${smtpPort}`, mailFrom: "tollgate@example.com" },
    identity: {
      issuers: [
        {
          issuer: issuer.url,
          audience: AUDIENCE,
          roles: [
            { when: { groups: "staff" }, role: "developer", organization },
            { when: { groups: "audit" }, role: "auditor" },
            { when: { groups: "finance" }, role: "operator" },
          ],
        },
      ],
    },
  });

  beforeAll(async () => {
    [dataDir, issuer, smtpPort] = await Promise.all([makeDirectory(), startIssuer(), freePort()]);
    if (store === "PostgreSQL") database = await createTestDatabase();
    service = await startService({ dataDir, databaseUrl: database?.url, config: { retention: { requestMonths: 1 } } });
    organizationId = (await post("/organizations", { name: `${MARKER} Ltd.` })).id as string;
    await service.end();
    service = await startService({ dataDir, databaseUrl: database?.url, config: config(organizationId) });
    admin = operator(service);
    tables = database === undefined ? openSqlite(dataDir) : await openPostgres(database.url);
  });
  afterAll(async () => {
    await tables?.close();
    await service?.end();
    await issuer?.close();
    await database?.drop();
  });

  /** With a key, so that the answer is stored. */
  async function post(path: string, body: object): Promise<Row> {
    const headers = { "idempotency-key": v7() };
    const { status, body: answer } = await operator(service).call("POST", path, body, headers);
    expect(status, JSON.stringify(answer)).toBeLessThan(300);
    return answer;
  }
  const path = () => `/organizations/${organizationId}`;
  const erase = () => admin.call("POST", `${path()}/erase`);
  const isNotDue = (message: RegExp, possible_from: unknown) => ({
    status: 409,
    body: { error: { code: "erasure_not_due", message: expect.stringMatching(message), possible_from } },
  });

  /** Calls everything that writes texts of an organization. */
  async function fill(): Promise<void> {
    const terms = { external_id: MARKER, contacts: [`${MARKER}@example.com`], note: `${MARKER} pays late` };
    await admin.call("PATCH", path(), { ...terms, keeps_conversations: true, limits: { requests_per_minute: 1_000 } });
    await post(`${path()}/grants`, { amount: 9, reference: `${MARKER} 1` });
    await post(`${path()}/revocations`, { amount: 1, reference: `${MARKER} 2`, note: `${MARKER} bounced` });
    const batch = await post("/voucher-batches", { name: "Launch", count: 2, amount: 3 });
    await post(`${path()}/redemptions`, { code: (batch.codes as string[])[0] });
    await post(`${path()}/allowances`, { amount: 2, reference: `${MARKER} plan` });
    const receiver = { name: MARKER, format: "mail", target: `${MARKER}@example.com` };
    await post("/receivers", { organization_id: organizationId, ...receiver });
    const each = { name: MARKER, amount: 0.04, each: "metadata.user", selector: { metadata: { team: [MARKER] } } };
    await post(`${path()}/budgets`, each);
    await service.tollgate(
      "budget",
      "create",
      "--org",
      organizationId,
      "--name",
      MARKER,
      "--amount",
      "9",
      "--model",
      `${MARKER}*`,
    );
    const pinned = { pinned: { account: MARKER }, scopes: MEMBER_SCOPES };
    const { id, secret } = await post("/tokens", { organization_id: organizationId, name: MARKER, ...pinned });
    await (await signIn(service, String(secret))).call("GET", "/usage");
    await ask(String(secret));
    const jwt = await issuer.token({ groups: ["staff"], sub: MARKER, name: `${MARKER} Ada` });
    await ask(jwt);
    for (const change of ["block", "unblock"])
      await post(`/identities/${change}`, { issuer: issuer.url, subject: MARKER });
    await post(`${path()}/credits`, { amount: 0.000001, reference: `${MARKER} 3`, note: MARKER });
    await post(`/tokens/${id}/rotate`, {});
    const person = `{"issuer":"${issuer.url}","subject":"${MARKER}","organizationId":"${organizationId}"}`;
    const card = `{"customerId":"${MARKER}","id":"pm_1","brand":"visa","last4":"4242","savedAtMs":1}`;
    await tables.read(
      `insert into top_up values ('${organizationId}', 'off', null, 1, 1, 1, 'usd', '${card}', 1, 1, 1)`,
    );
    const hash = store === "SQLite" ? "x'01'" : "'\\x01'";
    await tables.read(
      `insert into admin_session (hash, person, created_at, seen_at, expires_at) values (${hash}, '${person}', 1, 1, ${Date.now() + DAY_MS})`,
    );
  }

  /** Uses the endpoints that store something of a request. */
  async function ask(token: string): Promise<void> {
    const metadata = { user: MARKER, team: MARKER };
    const text = { model: "priced", metadata };
    const chat = { ...text, messages: [{ role: "user", content: MARKER }], max_tokens: 200 };
    for (const [endpoint, body] of [
      ["chat/completions", chat],
      ["responses", { ...text, input: MARKER, store: true, max_output_tokens: 200 }],
      ["chat/completions", { ...chat, model: MARKER }],
    ] as const) {
      const headers =
        endpoint === "responses" ? {} : { "idempotency-key": `${MARKER} ${token.slice(-8)} ${body.model}` };
      const answer = await send(service, `/v1/${endpoint}`, token, body, { headers });
      expect([200, 402, 404], await answer.text()).toContain(answer.status);
    }
  }

  /** Moves the bookings of the organization to a past month. */
  async function move(atMs: number): Promise<void> {
    const of = `where organization_id = '${organizationId}'`;
    await tables.read(`update credit_grant set created_at = ${atMs} ${of}`);
    const isImmediate = "source = 'credit' or reference like 'vou_%'";
    await tables.read(`update credit_grant set effective_at = ${atMs} ${of} and (${isImmediate})`);
    await tables.read(`update voucher set redeemed_at = ${atMs} ${of}`);
    await tables.read(`update adjustment set made_at = ${atMs} ${of}`);
    for (const { id } of await tables.read(`select id from request ${of}`)) {
      const times = `id = '${v7({ msecs: atMs })}', made_at = ${atMs}, ended_at = ${atMs}, is_late = 0`;
      await tables.read(`update request set ${times} ${of} and id = '${id}'`);
    }
    for (const keys of ["idempotency_key", "admin_idempotency_key"]) {
      await tables.read(`update ${keys} set expires_at = ${atMs}`);
    }
    await service.tollgate("retention", "run");
  }

  /** Returns the ids of identities, in their order. */
  const identities = async () => (await tables.read("select id from identity order by id")).map(({ id }) => id);

  /** Uses the organization as an auditor, to whom no row refers, and as an operator, whom its audit log names. */
  async function useAsOthers() {
    for (const [group, method, body] of [
      ["audit", "GET"],
      ["finance", "PATCH", { note: "late" }],
    ] as const) {
      const token = await issuer.token({ groups: [group], sub: group });
      const client = new AdminClient(service, { authorization: `Bearer ${token}` });
      expect(await client.call(method, path(), body)).toMatchObject({ status: 200 });
    }
    const ids = await identities();
    expect(ids).toHaveLength(2);
    return ids;
  }

  test("Names, texts and conversations of a closed organization go once its retention has passed; sums stay.", async () => {
    const others = await useAsOthers();
    await fill();
    expect(await erase()).toMatchObject(isNotDue(/^Close the organization first/, null));
    // Refusals and conversations are written in the background, and the erasure would not see a late one.
    const written = "(select count(*) from conversation) + (select count(*) from refusal)";
    const waits = { timeout: 60_000, interval: 100 };
    await expect
      .poll(async () => (await tables.read(`select ${written} as rows`)).map(({ rows }) => Number(rows)), waits)
      .toEqual([CONVERSATIONS + REFUSALS]);
    await expect
      .poll(() => markedColumns(tables), waits)
      .toEqual(expect.arrayContaining(["conversation.request", "delivery.event_key", "refusal.model"]));
    const before = await markedColumns(tables);
    await post(`${path()}/close`, { rest: "refunded" });
    const thisMonth = monthStart(Date.now());
    expect(await erase()).toMatchObject(
      isNotDue(/requests are stored until/, new Date(monthStart(Date.now(), 2)).toISOString()),
    );
    await move(monthStart(Date.now(), -2) + DAY_MS);
    expect(new Set([...before, ...(await markedColumns(tables))])).toEqual(new Set([...MARKED, ...MARKED_REQUEST]));
    expect((await markedColumns(tables)).filter((name) => name.startsWith("request."))).toEqual([]);
    await tables.read(
      `update adjustment set made_at = ${thisMonth} where organization_id = '${organizationId}' and kind = 'revoke'`,
    );
    const statementDay = isoDay(monthStart(thisMonth, 1) + DAY_MS);
    expect(await erase()).toMatchObject(
      isNotDue(new RegExp(`statement is made on ${statementDay}`), `${statementDay}T00:00:00.000Z`),
    );
    await tables.read(
      `update adjustment set made_at = ${monthStart(thisMonth, -2) + DAY_MS} where organization_id = '${organizationId}'`,
    );

    const sums = async () =>
      (await admin.call<{ data: Row[] }>("GET", `/statements?organization_id=${organizationId}`)).body.data;
    const { credits } = (await admin.call("GET", path())).body;
    const stated = await sums();
    const erased = await erase();
    expect(erased, JSON.stringify(erased.body)).toMatchObject({ status: 200 });
    expect(erased.body).toMatchObject({ name: "Erased", status: "closed", credits, contacts: null, note: null });
    expect(await markedColumns(tables)).toEqual([]);
    const customer = { name: "Erased", external_id: null, contacts: [] };
    expect(await sums()).toEqual(stated.map((statement) => ({ ...statement, customer })));
    expect(stated.length).toBeGreaterThan(0);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
    const entries = await admin.call<{ data: Row[] }>("GET", `/audit?action=organization.erase`);
    expect(entries.body.data).toMatchObject([
      { organization_id: organizationId, actor: { kind: "operator", name: "admin" } },
    ]);
    await expectOnlySums();
    expect(await identities()).toEqual(others);

    expect((await erase()).body).toEqual(erased.body);
    expect((await admin.call("GET", `/audit?action=organization.erase`)).body).toEqual(entries.body);
    expect(await admin.call("PATCH", path(), { note: MARKER })).toMatchObject({ status: 400 });
    const jwt = await issuer.token({ groups: ["staff"], sub: MARKER });
    expect((await send(service, "/v1/models", jwt)).status).toBe(403);
    expect(await markedColumns(tables)).toEqual([]);

    // As if a node had written them just before the erasure, or as if the erasure had been interrupted.
    await tables.read(`update token set name = '${MARKER}' where organization_id = '${organizationId}'`);
    await tables.read(`update adjustment set note = '${MARKER}' where organization_id = '${organizationId}'`);
    await service.tollgate("retention", "run");
    expect(await markedColumns(tables)).toEqual([]);
  }, 300_000);

  /** Fails for a text of an organization that nobody has decided to keep. */
  async function expectOnlySums(): Promise<void> {
    const kept: Record<string, Set<string>> = {};
    for (const { name, kinds, columns } of ALL_TABLES) {
      const owner = name === "organization" ? "id" : "organization_id";
      if (!columns.includes(owner) || name === "audit_entry") continue;
      for (const row of await tables.read(`select * from ${name} where ${owner} = '${organizationId}'`)) {
        const texts = columns.filter((column) => kinds[column] === "text" && row[column] !== null);
        kept[name] = new Set([...(kept[name] ?? []), ...texts]);
      }
    }
    for (const [name, columns] of Object.entries(kept)) {
      expect((REMAINING[name] ?? "").split(" "), `the texts of ${name}`).toEqual(expect.arrayContaining([...columns]));
    }
    const details = "before is not null or after is not null or written_rows is not null";
    const rows = await tables.read(
      `select action from audit_entry where organization_id = '${organizationId}' and (${details})`,
    );
    expect(rows).toEqual([{ action: "organization.erase" }]);
  }

  test.runIf(store === "SQLite")("After VACUUM the file of SQLite does not contain the texts any more.", async () => {
    await tables.close();
    await service.end();
    const beside = new DatabaseSync(join(dataDir, "tollgate.db"));
    beside.exec("vacuum; pragma wal_checkpoint(truncate)");
    beside.close();
    expect((await readFile(join(dataDir, "tollgate.db"))).includes(MARKER)).toBe(false);
  });
});
