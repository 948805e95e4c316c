import { mkdtemp, rm } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTransport } from "nodemailer";
import { SMTPServer } from "smtp-server";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { monthStart } from "../../src/api/time.ts";
import { createScrub } from "../../src/providers/scrub.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { Dispatcher, RETRY_AFTER_MS } from "../../src/warnings/dispatcher.ts";
import { mailSender } from "../../src/warnings/mail.ts";
import { grantOf, one } from "../stores/fixture.ts";
import { storeDigests } from "../support/month-digests.ts";

const ORGANIZATION = "org_a";
let mails: { to: string[]; content: string }[];
let refuses = false;
const server = new SMTPServer({
  authOptional: true,
  hidePIPELINING: true,
  disabledCommands: ["STARTTLS"],
  onRcptTo: (_, _session, callback) => callback(refuses ? new Error("Try again later") : null),
  onData(stream, { envelope }, callback) {
    let content = "";
    stream.on("data", (piece) => (content += piece));
    stream.on("end", () => {
      mails.push({ to: envelope.rcptTo.map(({ address }) => address), content });
      callback();
    });
  },
});
beforeAll(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
afterAll(() => new Promise<void>((resolve) => server.close(() => resolve())));

let dataDir: string;
let store: Store;
let nowMs: number;
let settings: { mailsStatements: boolean; publicUrl: string | undefined };
let dispatchers: Dispatcher[];
beforeEach(async () => {
  [mails, dispatchers, refuses, nowMs] = [[], [], false, Date.now()];
  settings = { mailsStatements: true, publicUrl: "https://ai.example.com/" };
  dataDir = await mkdtemp(join(tmpdir(), "tollgate-statement-mail-"));
  store = await openSqliteStore({ dataDir, role: "service" });
  const contacts = ["pay@example.com", "boss@example.com"];
  const row = { id: ORGANIZATION, name: "Acme <&> co", kind: "standard", createdAtMs: 1, contacts } as const;
  await store.accounts.insertOrganization({ ...row, contacts: [...contacts] });
  await one(store.books, grantOf(ORGANIZATION, 12_500_001n), "durable");
});
afterEach(async () => {
  for (const dispatcher of dispatchers) await dispatcher.stop();
  await store.close();
  await rm(dataDir, { recursive: true });
});

function node(): Dispatcher {
  const { port } = server.server.address() as AddressInfo;
  const log = { debug() {}, info() {}, error() {}, warn() {} };
  const url = `smtp://127.0.0.1:${port}`;
  const sender = mailSender({ createTransport, createScrub, url, from: "billing@example.com", log });
  const made = new Dispatcher({
    ...{ rows: store.events, accounts: store.accounts, statements: store.monthlyStatements, clock: () => nowMs },
    ...{ senderOf: () => sender, settings: () => settings, close: () => sender.close() },
    outage: {
      failed({ err }: { err?: unknown }) {
        throw err;
      },
      succeeded: () => {},
    },
  });
  dispatchers.push(made);
  return made;
}

/** Lets nodes look for what is due, twice: a mail waits a minute. */
async function deliver(...nodes: Dispatcher[]): Promise<void> {
  for (let round = 0; round < 2; round += 1) {
    await Promise.all(nodes.map((one) => one.poll()));
    await Promise.all(nodes.map((one) => one.idle()));
    nowMs += 60_000;
  }
}

async function makeStatement(): Promise<string> {
  const { DatabaseSync } = await import("node:sqlite");
  const beside = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
  beside.exec(`update credit_grant set created_at = ${monthStart(Date.now(), -2) + 5}`);
  beside.close();
  await storeDigests(store, ORGANIZATION, 500, 1);
  const [row] = await store.monthlyStatements.list({ organizationId: null, month: null, before: null, limit: 9 });
  return `ST-${row?.number}`;
}

const addReceiver = (id: string, kinds: "statement.ready"[] | null) => {
  const terms = { id, organizationId: null, name: id, format: "mail", target: `${id}@example.com`, kinds } as const;
  const times = { secrets: [], createdAtMs: 1, failingSinceMs: null, disabledAtMs: null };
  const actor = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
  const change = { action: "test", organizationId: null, subjectId: null, before: null, after: null };
  return store.events.insertReceiver(
    { ...terms, kinds: kinds && [...kinds], ...times },
    { id, madeAtMs: 1, ...actor, ...change },
  );
};

test("a new statement is one mail to the contacts, with its figures and the address of its page", async () => {
  const id = await makeStatement();
  await deliver(node(), node());
  await deliver(node());
  expect(mails.map(({ to }) => to)).toEqual([["pay@example.com", "boss@example.com"]]);
  const content = (mails[0]?.content ?? "").replaceAll("=\r\n", "").replaceAll("=3D", "=");
  expect(content).toMatch(new RegExp(`^Subject: Acme <&> co: Statement ${id} of \\d{4}-\\d{2} is ready\\.\r$`, "m"));
  expect(content).toContain("Content-Type: text/plain");
  expect(content).not.toContain("text/html");
  expect(content).toMatch(/^Opening balance +0\r$/m);
  expect(content).toMatch(/^Granted +12\.500001\r$/m);
  expect(content).toMatch(/^Closing balance +12\.500001\r$/m);
  expect(content).toContain(`https://ai.example.com/statements/${id}`);
});

test("a mail that the server refuses is sent again later, and once", async () => {
  await makeStatement();
  refuses = true;
  await deliver(node());
  expect(mails).toEqual([]);
  const filter = { organizationId: ORGANIZATION, receiverId: null, state: null, before: null, limit: 9 };
  const [waiting] = await store.events.deliveries(filter);
  expect(waiting?.delivery).toMatchObject({ state: "waiting", attempts: 1, receiverId: `contacts_${ORGANIZATION}` });
  expect((await store.events.deliveryState()).waiting).toBe(1);
  refuses = false;
  nowMs += RETRY_AFTER_MS[0] + 60_000;
  await deliver(node());
  expect(mails).toHaveLength(1);
  expect((await store.events.deliveries(filter))[0]?.delivery.state).toBe("delivered");
});

test("contacts get none while the setting is off, and a receiver of the service only if it names the kind", async () => {
  settings = { mailsStatements: false, publicUrl: undefined };
  await addReceiver("all", null);
  await addReceiver("named", ["statement.ready"]);
  await makeStatement();
  await deliver(node());
  settings.mailsStatements = true;
  await deliver(node());
  expect(mails.map(({ to }) => to)).toEqual([["named@example.com"]]);
  expect(mails[0]?.content).not.toContain("/statements/");
});
