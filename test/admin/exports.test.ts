import { once } from "node:events";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { setImmediate as eventLoopTurn } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { NO_TOTALS, TOTALS } from "../../src/credits/statement-totals.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import type { Server, ServerOptions } from "../../src/http/server.ts";
import { Statements } from "../../src/reports/statement.ts";
import type { Books } from "../../src/stores/queries/books.ts";
import type { LedgerEntry } from "../../src/stores/queries/statement.ts";
import type { AccessEntry } from "../../src/telemetry/logger.ts";
import { startTestServer } from "../support/server.ts";

const MEBIBYTE = 1024 * 1024;
/** Note of each entry. A page has about a mebibyte, so the buffers of the operating system hold few pages. */
const NOTE = "x".repeat(10 * 1024);
/** More pages than the operating system buffers for a client that does not read. */
const UNREAD_PAGES_MAX = 32;
const ENTRY = { budgets: [], atMs: 0, amount: -1n, kind: "revoke" } as const;

type Read = (organizationId: string, page: number) => Promise<"full" | "last">;

/** Books that generate statements while they are read. `read` decides which page is the last one. */
class EndlessBooks implements Pick<Books, "statement" | "statementStart" | "statementTotals" | "closedBefore"> {
  readonly pages: Record<string, number> = {};
  read: Read = async () => "full";
  closedBefore = async () => null;
  monthDigests = async () => [];
  statementTotals = async () => NO_TOTALS;
  statementStart = async (_: string, fromMs: number | null) => ({ fromMs, opening: 0n, closedBeforeMs: null });

  async statement(organizationId: string, { after, limit }: { after: string | null; limit: number }) {
    const page = (this.pages[organizationId] ?? 0) + 1;
    this.pages[organizationId] = page;
    const count = (await this.read(organizationId, page)) === "full" ? limit : 1;
    const first = after === null ? 0 : Number(after) + 1;
    return Array.from({ length: count }, (_, index) => entryOf(organizationId, first + index));
  }
}

function entryOf(organizationId: string, number: number): LedgerEntry {
  const id = `adjustment_${number}`;
  const adjustment = { id, organizationId, holdId: null, reference: null, note: NOTE, draws: [] };
  return { ...ENTRY, position: `${number}`, adjustment } as unknown as LedgerEntry;
}

let server: Server;
let url: string;
let books: EndlessBooks;
/** Organizations that were looked up. */
let lookedUp: string[];
let entries: AccessEntry[];
const clients: Socket[] = [];

async function start(): Promise<void> {
  books = new EndlessBooks();
  [lookedUp, entries] = [[], []];
  const admin = {
    sessions: {
      operatorOf: async () => ({
        holder: { role: "operator", id: "adm_1", organizationId: null, token: null },
        refusal: null,
      }),
    },
    accounts: {
      organization: async (id: string) => {
        lookedUp.push(id);
        return { id, name: id };
      },
    },
    statements: new Statements(books),
  } as unknown as ServerOptions["admin"];
  const accessLog = { record: (entry: AccessEntry) => void entries.push(entry) };
  ({ url, server } = await startTestServer({ admin, accessLog }));
}

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  await server.close({ delayMs: 0, drainMs: 10_000 });
});

const pathOf = (organizationId: string) => `/admin/v1/organizations/${organizationId}/statement.csv`;
const HEADERS = { authorization: "Bearer tg-admin-any" };
const ask = (organizationId: string, method = "GET") =>
  fetch(`${url}${pathOf(organizationId)}`, { method, headers: HEADERS });

/** Connects a client that requests an export and reads nothing of it. */
async function connectUnread(organizationId: string): Promise<Socket> {
  const { port, hostname } = new URL(url);
  const client = connect({ port: Number(port), host: hostname });
  clients.push(client);
  client.pause();
  await once(client, "connect");
  client.write(`GET ${pathOf(organizationId)} HTTP/1.1\r\nHost: x\r\nAuthorization: ${HEADERS.authorization}\r\n\r\n`);
  return client;
}

/** Resolves with the number of pages that were read when the server waits for the client of an export. */
async function untilNoMoreIsRead(organizationId: string): Promise<number> {
  for (;;) {
    const before = books.pages[organizationId] ?? 0;
    for (let turn = 0; turn < 2_000; turn += 1) await eventLoopTurn();
    if (before > 0 && books.pages[organizationId] === before) return before;
  }
}

describe("exports of a statement", () => {
  test("A third concurrent export of an organization is refused before anything is read, and another organization's is not", async () => {
    await start();
    await connectUnread("org_a");
    await connectUnread("org_a");
    await expect.poll(() => lookedUp).toEqual(["org_a", "org_a"]);
    const pages = await untilNoMoreIsRead("org_a");
    const refused = await ask("org_a");
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "1"]);
    expect(await refused.json()).toMatchObject({
      error: {
        type: "rate_limit_error",
        code: "rate_limit_exceeded",
        message: "Rate limit reached for exports at once: limit 2. Try again when one has ended.",
      },
    });
    expect([lookedUp.length, books.pages.org_a]).toEqual([2, pages]);
    books.read = async () => "last";
    const other = await ask("org_b");
    expect([other.status, other.headers.get("content-type")]).toEqual([200, "text/csv; charset=utf-8"]);
    expect((await other.text()).trimEnd().split("\r\n")).toHaveLength(2 + TOTALS.length);
  });

  test("An export no longer counts once its client has disconnected or has read it to the end", async () => {
    await start();
    const [first] = [await connectUnread("org_a"), await connectUnread("org_a")];
    await untilNoMoreIsRead("org_a");
    expect((await ask("org_a")).status).toBe(429);
    books.read = async () => "last";
    first.destroy();
    await expect.poll(async () => (await ask("org_a")).status).toBe(200);
    for (let again = 0; again < 3; again += 1) expect(await (await ask("org_a")).text()).toContain("adjustment_0");
    expect(entries).toContainEqual(expect.objectContaining({ status: 499, code: "client_disconnected" }));
  });

  test("A pipelined export no longer counts once its client has disconnected", async () => {
    await start();
    const first = await connectUnread("org_a");
    await untilNoMoreIsRead("org_a");
    first.write(`GET ${pathOf("org_b")} HTTP/1.1\r\nHost: x\r\nAuthorization: ${HEADERS.authorization}\r\n\r\n`);
    expect(await untilNoMoreIsRead("org_b")).toBe(1);
    await connectUnread("org_b");
    await expect.poll(() => lookedUp.length).toBe(3);
    expect((await ask("org_b")).status).toBe(429);
    books.read = async () => "last";
    first.destroy();
    await expect.poll(async () => (await ask("org_b")).status).toBe(200);
  });

  test("While a client does not read, no further page is read from the store and at most one is in memory", async () => {
    await start();
    const accepted = once(server.instance.server, "connection");
    const client = await connectUnread("org_a");
    const [socket] = (await accepted) as [Socket];
    const pages = await untilNoMoreIsRead("org_a");
    expect(pages).toBeLessThan(UNREAD_PAGES_MAX);
    expect(socket.writableLength).toBeGreaterThan(0);
    expect(socket.writableLength).toBeLessThan(1.1 * MEBIBYTE);
    client.resume();
    await expect.poll(() => books.pages.org_a).toBeGreaterThan(pages + UNREAD_PAGES_MAX);
    client.pause();
    const resumed = books.pages.org_a ?? 0;
    expect(await untilNoMoreIsRead("org_a")).toBeLessThan(resumed + UNREAD_PAGES_MAX);
    expect(socket.writableLength).toBeLessThan(1.1 * MEBIBYTE);
  });

  test("A failure after the headers resets the connection, and the export no longer counts", async () => {
    await start();
    books.read = async (_organizationId, page) => {
      if (page === 3) throw new StoreUnavailableError("The store is away.");
      return "full";
    };
    const broken = await ask("org_a");
    expect(broken.status).toBe(200);
    await expect(broken.text()).rejects.toThrow();
    const { port, hostname } = new URL(url);
    books.pages.org_a = 0;
    const old = connect({ port: Number(port), host: hostname });
    old.write(`GET ${pathOf("org_a")} HTTP/1.0\r\nAuthorization: ${HEADERS.authorization}\r\n\r\n`);
    const failed = new Promise((resolve) => old.once("error", resolve));
    expect(await Promise.race([failed, once(old.resume(), "end").then(() => "whole")])).toMatchObject({
      code: "ECONNRESET",
    });
    expect(entries).toMatchObject([
      { status: 200, code: "store_unavailable" },
      { status: 200, code: "store_unavailable" },
    ]);
    books.read = async () => "last";
    for (let again = 0; again < 3; again += 1) expect(await (await ask("org_a")).text()).toContain("adjustment_0");
  });

  test("A failure of the first page is answered with an error", async () => {
    await start();
    books.read = () => Promise.reject(new StoreUnavailableError("The store is away."));
    for (let again = 0; again < 3; again += 1) {
      const refused = await ask("org_a");
      expect([refused.status, await refused.json()]).toMatchObject([503, { error: { code: "store_unavailable" } }]);
    }
  });

  test("A HEAD request reads no page", async () => {
    await start();
    const head = await ask("org_a", "HEAD");
    expect([head.status, head.headers.get("content-type")]).toEqual([200, "text/csv; charset=utf-8"]);
    expect(head.headers.get("content-disposition")).toContain("statement.csv");
    expect(books.pages).toEqual({});
  });
});

test("The event loop takes a turn between any two pages of concurrent exports", async () => {
  const endless = new EndlessBooks();
  const turns: number[] = [];
  let turn = 0;
  endless.read = async (_organizationId, page) => {
    turns.push(turn);
    return page < 10 ? "full" : "last";
  };
  let isRunning = true;
  const loop = (async () => {
    while (isRunning) {
      await eventLoopTurn();
      turn += 1;
    }
  })();
  const statements = new Statements(endless);
  const drain = async (organizationId: string) => {
    const selection = { organizationId, kind: null, fromMs: undefined, toMs: undefined };
    for await (const lines of statements.csv(selection, { forOperator: true }))
      expect(lines.split("\r\n").length).toBeLessThan(103);
  };
  await Promise.all(["org_a", "org_b", "org_c"].map(drain));
  isRunning = false;
  await loop;
  expect(turns).toHaveLength(30);
  expect(new Set(turns).size).toBe(30);
});
