import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AdminClient, FROM_CONSOLE, operator, signIn } from "../support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import {
  eventsOf,
  MEMBER_SCOPES,
  makeDirectory,
  makeOrganization,
  type Organization,
  type ServiceProcess,
  send,
  startProcess,
} from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

const COMPLETIONS = "/v1/chat/completions";
const PRICE = { input: 1, output: 1 };
const usage = { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 };
/** Text of conversations that must not be stored. */
const CANARY = "canaryunkept";

type Body = Record<string, unknown>;
const prompt = (model: string, content = "Good morning", fields: Body = {}): Body => {
  return { model, messages: [{ role: "user", content }], ...fields };
};

describe.each(["SQLite", "PostgreSQL"])("conversations on %s", (store) => {
  const isLeftOut = store === "PostgreSQL" && !hasPostgres;
  let upstream: Upstream;
  let database: TestDatabase | undefined;
  let dataDir: string;
  let service: ServiceProcess;
  let admin: AdminClient;
  let silent: Organization;
  let kept: Organization;

  const start = async () => {
    const names = ["slow", "mute", "breaking"];
    const models = names.map((id) => ({ id, price: PRICE, routes: [{ provider: "up", model: id }] }));
    const providers = [upstream.provider];
    const config = {
      providers,
      models: [...models],
      playground: { openToGuests: true },
      conversations: { limitBytes: 4_096 },
    };
    service = await startProcess({ config, dataDir, databaseUrl: database?.url, environment: { LOG_LEVEL: "debug" } });
    if (admin !== undefined) admin = new AdminClient(service, admin.headers);
  };
  const ask = (organization: Organization, body: Body, headers: Record<string, string> = {}) =>
    send(service, COMPLETIONS, organization.token, body, { headers });
  const turn = (id: string, isOn: boolean) =>
    admin.call("PATCH", `/organizations/${id}`, { keeps_conversations: isOn });

  beforeAll(async () => {
    if (isLeftOut) return;
    [upstream, dataDir] = await Promise.all([startUpstream(), makeDirectory()]);
    if (store === "PostgreSQL") database = await createTestDatabase();
    upstream.behave("slow", answering({ words: Array(2_000).fill("word "), usage, pauseMs: 20 }));
    upstream.behave("mute", () => {});
    upstream.behave("breaking", ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('data: {"choices":[{"index":0,"delta":{"content":"half an "}}]}\n\n');
      setTimeout(() => response.destroy(), 50);
    });
    await start();
    [silent, kept] = await Promise.all([
      makeOrganization(service, "100"),
      makeOrganization(service, "100", { scopes: MEMBER_SCOPES }),
    ]);
    admin = operator(service);
  });
  afterAll(async () => {
    await service?.end();
    await upstream?.close();
    await database?.drop();
    if (dataDir !== undefined) await rm(dataDir, { recursive: true });
  });

  /** The id of a request, as its page has it. */
  async function idOf(answer: Response): Promise<string> {
    const path = `/requests?request_id=${answer.headers.get("x-request-id")}`;
    return (await admin.call<{ data: { id: string }[] }>("GET", path)).body.data[0]?.id ?? "none";
  }
  const detailOf = async (id: string) => (await admin.call("GET", `/requests/${id}`)).body;
  /** Returns the stored conversation of a request, once it is stored. */
  async function conversationOf(answer: Response | string): Promise<Body> {
    const id = typeof answer === "string" ? answer : await idOf(answer);
    await expect.poll(() => detailOf(id)).toMatchObject({ has_conversation: true });
    const { status, body } = await admin.call("GET", `/requests/${id}/conversation`);
    expect([status, body]).toEqual([200, expect.objectContaining({ object: "conversation", id })]);
    return body;
  }
  /** Runs a statement beside the service. */
  async function execute(statement: string): Promise<Record<string, unknown>[]> {
    if (database === undefined) {
      const file = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
      const rows = file.prepare(statement).all();
      file.close();
      return rows;
    }
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    const { rows } = await client.query(statement);
    await client.end();
    return rows;
  }
  /** All that is stored anywhere. */
  async function everything(): Promise<string> {
    const entries = await readdir(dataDir, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
    // The service may have put a file in its place, or taken it away, meanwhile.
    const read = (file: string) => readFile(file, "latin1").catch(() => "");
    const texts = await Promise.all(files.map(read));
    if (database === undefined) return texts.join("\n");
    const tables = await execute(
      "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
    );
    for (const { relname } of tables) texts.push(JSON.stringify(await execute(`SELECT t::text FROM ${relname} AS t`)));
    return texts.join("\n");
  }

  test.skipIf(isLeftOut)("conversations are not stored for an organization that did not enable it", async () => {
    const { body: guest } = await new AdminClient(service, FROM_CONSOLE).call("POST", "/playground/token", {});
    expect(guest.keeps_conversations).toBe(false);
    for (const id of [silent.id, kept.id, "org_playground"]) {
      expect((await admin.call("GET", `/organizations/${id}`)).body.keeps_conversations).toBe(false);
    }
    const sent = [
      await ask(silent, prompt("sandbox/echo", CANARY, { instructions: CANARY })),
      await ask(silent, prompt("sandbox/echo", CANARY, { stream: true })),
      await ask(silent, prompt("breaking", CANARY, { stream: true })),
      await ask(silent, prompt("sandbox/fault", `status 500 ${CANARY}`)),
      await send(service, COMPLETIONS, String(guest.token), prompt("sandbox/echo", CANARY)),
    ];
    await Promise.all(sent.map((answer) => answer.text().catch(() => "")));
    expect(await detailOf(await idOf(sent[0] as Response))).toMatchObject({
      keeps_conversations: false,
      has_conversation: false,
    });
  });

  test.skipIf(isLeftOut)("are kept whole once it was turned on, with who did it on record", async () => {
    expect((await turn(kept.id, true)).body.keeps_conversations).toBe(true);
    const [{ body: audit }] = [await admin.call<{ data: Body[] }>("GET", `/audit?organization_id=${kept.id}`)];
    expect(audit.data[0]).toMatchObject({
      action: "organization.change",
      actor: { kind: "operator" },
      before: { keepsConversations: false },
      after: { keepsConversations: true },
    });
    const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }];
    const asked = prompt("sandbox/echo", "Guten Morgen 🦊\0", { temperature: 0.5, instructions: "Be brief.", tools });
    const answer = await ask(kept, { ...asked, unknown: 1, seed: null });
    const { choices } = (await answer.json()) as { choices: Body[] };
    const conversation = await conversationOf(answer);
    const [{ message, finish_reason }] = choices as [Body];
    expect(conversation).toMatchObject({
      organization_id: kept.id,
      answer: { message, finish_reason },
      is_truncated: false,
    });
    expect(conversation.request).toEqual(asked);
    const keptMs = Date.parse(String(conversation.kept_until)) - Date.parse(String(conversation.ended_at));
    expect(keptMs).toBe(30 * 86_400_000);
  });

  test.skipIf(isLeftOut)(
    "hold what was streamed, in whole, broken off and left, and nothing of what never began",
    async () => {
      const streamed = await ask(kept, prompt("sandbox/echo", "one two three", { stream: true }));
      expect(eventsOf(await streamed.text()).at(-1)).toBe("[DONE]");
      expect(await conversationOf(streamed)).toMatchObject({
        answer: { message: { content: "one two three" }, finish_reason: "stop" },
      });
      const broken = await ask(kept, prompt("breaking", "break", { stream: true }));
      await broken.text();
      expect(await conversationOf(broken)).toMatchObject({
        answer: { message: { content: "half an " }, finish_reason: null },
      });
      const controller = new AbortController();
      const left = await send(service, COMPLETIONS, kept.token, prompt("slow", "long", { stream: true }), {
        signal: controller.signal,
      });
      const reader = left.body?.getReader();
      let seen = "";
      while (!seen.includes("word ")) seen += new TextDecoder().decode((await reader?.read())?.value);
      controller.abort();
      const { answer } = (await conversationOf(left)) as { answer: { message: Body; finish_reason: unknown } };
      expect(answer.message.content).toMatch(/^(word ){1,1999}$/);
      expect(answer.finish_reason).toBeNull();
      const before = upstream.requests.length;
      const leaving = new AbortController();
      const options = { signal: leaving.signal };
      const gone = send(service, COMPLETIONS, kept.token, prompt("mute", "in one piece"), options).catch(() => "gone");
      await expect.poll(() => upstream.requests.length).toBe(before + 1);
      leaving.abort();
      expect(await gone).toBe("gone");
      const path = `/requests?organization_id=${kept.id}&model=mute&limit=1`;
      const { body: newest } = await admin.call<{ data: { id: string }[] }>("GET", path);
      expect(await conversationOf(newest.data[0]?.id ?? "none")).toMatchObject({
        answer: null,
        request: { messages: [{ content: "in one piece" }] },
      });
      const failed = await ask(kept, prompt("sandbox/fault", "status 500"));
      expect(failed.status).toBe(502);
      expect(await conversationOf(failed)).toMatchObject({ answer: null, request: { model: "sandbox/fault" } });
    },
  );

  test.skipIf(isLeftOut)("are cut where they are too long, and hold an answer that was given twice once", async () => {
    const long = await ask(kept, prompt("sandbox/story", "x".repeat(9_000), { max_tokens: 20 }));
    const conversation = await conversationOf(long);
    expect(conversation.is_truncated).toBe(true);
    expect(JSON.stringify(conversation.request).length).toBeLessThan(4_096);
    const headers = { "idempotency-key": "once" };
    const first = await ask(kept, prompt("sandbox/echo", "again"), headers);
    const again = await ask(kept, prompt("sandbox/echo", "again"), headers);
    expect(again.headers.get("x-tollgate-idempotent-replay")).toBe("true");
    expect(await again.json()).toEqual(await first.json());
    expect(await conversationOf(first)).toMatchObject({ answer: { message: { content: "again" } } });
    const [row] = await execute("SELECT count(*) AS count FROM conversation WHERE request LIKE '%again%'");
    expect(Number(row?.count)).toBe(1);
  });

  test.skipIf(isLeftOut)("are read by the operator alone, and each time on record", async () => {
    const answer = await ask(kept, prompt("sandbox/echo", "for the operator"));
    const { id } = await conversationOf(answer);
    const member = await signIn(service, kept.token);
    const refused = await member.call("GET", `/requests/${id}/conversation`);
    expect([refused.status, refused.body.error]).toEqual([403, expect.objectContaining({ code: "insufficient_role" })]);
    for (const path of [`/requests/${id}`, "/requests", `/organizations/${kept.id}`]) {
      expect(JSON.stringify((await member.call("GET", path)).body)).not.toContain("for the operator");
    }
    expect((await member.call("GET", `/requests/${id}`)).body.has_conversation).toBe(true);
    const { body } = await admin.call<{ data: Body[] }>("GET", "/audit?action=conversation.read&limit=1");
    const actor = expect.objectContaining({ kind: "operator", address: "127.0.0.1" });
    expect(body.data).toEqual([expect.objectContaining({ actor, subject_id: id, organization_id: kept.id })]);
    const nothing = await admin.call(
      "GET",
      `/requests/${await idOf(await ask(silent, prompt("sandbox/echo")))}/conversation`,
    );
    expect([nothing.status, nothing.body.error]).toEqual([404, expect.objectContaining({ code: "not_found" })]);
  });

  test.skipIf(isLeftOut)("hold no token, and are nowhere else; what was not to be kept is not there", async () => {
    const all = await everything();
    expect(all).toContain("for the operator");
    for (const word of [CANARY, kept.token, silent.token]) expect(all.includes(word)).toBe(false);
    expect(service.output()).not.toContain("for the operator");
  });

  test.skipIf(isLeftOut)(
    "are written before a service has stopped, and after one was killed the books are sound",
    async () => {
      const last = await ask(kept, prompt("sandbox/echo", "last words"));
      const id = await idOf(last);
      expect(await service.end()).toBe(0);
      expect(await execute(`SELECT answer FROM conversation WHERE hold_id = '${id}'`)).toHaveLength(1);
      await execute(`UPDATE conversation SET ended_at = 1 WHERE hold_id = '${id}'`);
      await start();
      await expect.poll(() => execute(`SELECT answer FROM conversation WHERE hold_id = '${id}'`)).toEqual([]);
      const before = Number((await execute("SELECT count(*) AS count FROM conversation"))[0]?.count);
      await Promise.all(Array.from({ length: 20 }, () => ask(kept, prompt("sandbox/echo", "killed"))));
      await service.end("SIGKILL");
      await start();
      const after = Number((await execute("SELECT count(*) AS count FROM conversation"))[0]?.count);
      expect(after - before).toBeLessThanOrEqual(20);
      expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
      await conversationOf(await ask(kept, prompt("sandbox/echo", "on we go")));
    },
  );

  test.skipIf(isLeftOut)(
    "conversations are no longer stored once storage is disabled, and are deleted on request",
    async () => {
      const early = await ask(kept, prompt("sandbox/echo", "early"));
      const { id } = await conversationOf(early);
      await turn(silent.id, true);
      const other = await ask(silent, prompt("sandbox/echo", "another's"));
      const running = await ask(kept, prompt("slow", "begun before", { stream: true, max_tokens: 4000 }));
      await turn(kept.id, false);
      await running.body?.cancel();
      const late = await ask(kept, prompt("sandbox/echo", "late"));
      await conversationOf(other);
      for (const answer of [late, running]) {
        expect(await detailOf(await idOf(answer))).toMatchObject({
          keeps_conversations: false,
          has_conversation: false,
        });
      }
      expect((await detailOf(String(id))).has_conversation).toBe(true);
      const path = `/organizations/${kept.id}/conversations`;
      const { status, body } = await admin.call("DELETE", path);
      expect([status, body]).toEqual([200, expect.objectContaining({ organization_id: kept.id })]);
      expect(body.removed).toBeGreaterThan(5);
      expect((await admin.call("DELETE", path)).body.removed).toBe(0);
      expect((await detailOf(String(id))).has_conversation).toBe(false);
      expect((await admin.call("GET", `/requests/${id}/conversation`)).status).toBe(404);
      await conversationOf(other);
      const { body: audit } = await admin.call<{ data: Body[] }>("GET", "/audit?action=conversations.remove");
      const record = { subject_id: kept.id, organization_id: kept.id };
      expect(audit.data).toMatchObject([
        { ...record, before: { kept: 0 } },
        { ...record, before: { kept: body.removed } },
      ]);
    },
  );

  test.skipIf(isLeftOut)("are kept of guests too where that was turned on", async () => {
    await turn("org_playground", true);
    const { body: guest } = await new AdminClient(service, FROM_CONSOLE).call("POST", "/playground/token", {});
    expect(guest.keeps_conversations).toBe(true);
    const answer = await send(service, COMPLETIONS, String(guest.token), prompt("sandbox/echo", "a guest's"));
    expect(await conversationOf(answer)).toMatchObject({ organization_id: "org_playground" });
  });
});
