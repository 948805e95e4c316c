import { type AddressInfo, createServer, type Socket } from "node:net";
import { createTransport } from "nodemailer";
import { SMTPServer } from "smtp-server";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type EventRow, eventOf } from "../../src/credits/warnings.ts";
import { createScrub } from "../../src/providers/scrub.ts";
import type { ReceiverRow } from "../../src/stores/queries/events.ts";
import type { EventMessage } from "../../src/warnings/dispatcher.ts";
import { mailSender } from "../../src/warnings/mail.ts";

interface Mail {
  user: string | undefined;
  from: string;
  to: string[];
  isEncrypted: boolean;
  content: string;
}

let mails: Mail[];
beforeEach(() => {
  mails = [];
});
const server = new SMTPServer({
  authOptional: true,
  hidePIPELINING: true,
  disabledCommands: ["STARTTLS"],
  allowInsecureAuth: true,
  onAuth({ username, password }, _session, callback) {
    const encoded = Buffer.from(`\0${username}\0${password}`).toString("base64");
    if (password !== "p@ss word") return callback(new Error(`Invalid:\r\n${password} ${encoded} at mail.example.com`));
    callback(null, { user: username ?? "" });
  },
  onRcptTo({ address }, _session, callback) {
    callback(address.startsWith("nobody") ? new Error("No such mailbox") : null);
  },
  onData(stream, { envelope, user, secure }, callback) {
    let content = "";
    stream.on("data", (piece) => (content += piece));
    stream.on("end", () => {
      const from = envelope.mailFrom === false ? "" : envelope.mailFrom.address;
      mails.push({ user, from, to: envelope.rcptTo.map(({ address }) => address), isEncrypted: secure, content });
      callback(null, "2.6.0 <id@EXCH01.corp.local> Hostname=EXCH01.corp.local Queued");
    });
  },
});
let port: number;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  port = (server.server.address() as AddressInfo).port;
});
afterAll(() => new Promise<void>((resolve) => server.close(() => resolve())));

const RECEIVER: ReceiverRow = {
  ...{ id: "rcv_a", organizationId: null, name: "Ops", format: "mail", target: "ops@example.com", kinds: null },
  ...{ secrets: [], createdAtMs: 1, failingSinceMs: null, disabledAtMs: null },
};
const never = new AbortController().signal;
function message(text: string, nowMs = 0): EventMessage {
  const event: EventRow = eventOf("receiver.test", { organizationId: null, nowMs, period: [text] }, {});
  return { event, text };
}
let warned: object[];
beforeEach(() => {
  warned = [];
});
function senderOf(url: string, create = createTransport, timeoutMs?: number) {
  const log = { debug() {}, info() {}, error() {}, warn: (fields: object) => void warned.push(fields) };
  return mailSender({ createTransport: create, createScrub, url, from: "tollgate@example.com", log, timeoutMs });
}

test("one event is one mail, in plain text and HTML, with the text as its subject", async () => {
  const sender = senderOf(`smtp://user:p%40ss%20word@127.0.0.1:${port}`);
  const result = await sender.send(RECEIVER, [message("Acme <& co>: 5 credits are left.")], never);
  await sender.close();
  expect(result).toEqual({ isDelivered: true, result: expect.stringMatching(/^250/) });
  expect(mails).toHaveLength(1);
  const [{ content, ...envelope }] = mails as [Mail];
  expect(envelope).toEqual({ user: "user", from: "tollgate@example.com", to: ["ops@example.com"], isEncrypted: false });
  expect(content).toMatch(/^Subject: Tollgate: Acme <& co>: 5 credits are left\.$/m);
  expect(content).toContain("Acme <& co>: 5 credits are left.\r\n(1970-01-01T00:00:00.000Z, receiver.test)");
  expect(content).toMatch(/^Auto-Submitted: auto-generated\r$/m);
  expect(content).toContain("Content-Type: text/html");
  expect(content).toContain("Acme &#60;&#38; co&#62;: 5 credits are left.");
});

test("the answer to a mail that was sent is without the server's names, and says how many addresses were refused", async () => {
  const sender = senderOf(`smtp://127.0.0.1:${port}`);
  const attempt = (target: string) => sender.send({ ...RECEIVER, target }, [message("x")], never);
  const result = "250 2.6.0 <[removed]> Hostname=[removed] Queued";
  expect(await attempt("ops@example.com")).toEqual({ isDelivered: true, result });
  expect(warned).toEqual([]);
  const partly = `${result}; addresses refused: 2`;
  const rejected = ["nobody@example.com", "nobody2@example.com"];
  expect(await attempt(`pay@example.com, ${rejected.join(", ")}`)).toEqual({ isDelivered: true, result: partly });
  await sender.close();
  expect(warned).toEqual([{ receiverId: "rcv_a", rejected, result: partly }]);
  expect(mails.map(({ to }) => to)).toEqual([["ops@example.com"], ["pay@example.com"]]);
});

test("many events are one digest, the oldest event first", async () => {
  const sender = senderOf(`smtp://127.0.0.1:${port}`);
  const texts = Array.from({ length: 30 }, (_, index) => `Warning ${index}.`);
  const messages = texts
    .map((text, index) => message(text, index))
    .sort((one, other) => (one.text < other.text ? 1 : -1));
  expect(await sender.send(RECEIVER, messages, never)).toMatchObject({ isDelivered: true });
  await sender.close();
  expect(mails).toHaveLength(1);
  expect(mails[0]?.content).toContain("Subject: Tollgate: 30 warnings");
  // Long lines are broken.
  const content = (mails[0]?.content ?? "").replaceAll("=\r\n", "");
  const [plain, html] = [content.slice(0, content.indexOf("text/html")), content.slice(content.indexOf("text/html"))];
  for (const part of [plain, html]) expect(part.match(/Warning \d+\./g)).toEqual(texts);
});

test("a failure has its code and the server's answer on one line, without the login and the server's names", async () => {
  const attempt = async (url: string, target = RECEIVER.target) => {
    const sender = senderOf(url);
    const { isDelivered, result } = await sender.send({ ...RECEIVER, target }, [message("x")], never);
    await sender.close();
    expect(isDelivered).toBe(false);
    expect(warned.splice(0)).toEqual([{ receiverId: "rcv_a", server: url.replace(/.*[/@]/, ""), result }]);
    return result;
  };
  expect(await attempt(`smtp://127.0.0.1:${port}`, "nobody@example.com")).toBe(
    "the mail was not sent (EENVELOPE): 550 No such mailbox",
  );
  expect(await attempt(`smtp://user:not%20the%20password@127.0.0.1:${port}`)).toBe(
    "the mail was not sent (EAUTH): 535 Invalid: [removed] [removed] at [removed]",
  );
  expect(await attempt(`smtps://127.0.0.1:${port}`)).toBe(
    "the mail was not sent (ERR_SSL_WRONG_VERSION_NUMBER): wrong version number",
  );
  const free = createServer();
  await new Promise<void>((resolve) => free.listen(0, "127.0.0.1", resolve));
  const { port: closed } = free.address() as AddressInfo;
  await new Promise<void>((resolve) => free.close(() => resolve()));
  expect(await attempt(`smtp://127.0.0.1:${closed}`)).toBe(
    "the mail was not sent (ECONNREFUSED): connect ECONNREFUSED [removed]",
  );
  expect(await attempt("smtp://mail.invalid:25")).toMatch(
    /^the mail was not sent \((ENOTFOUND|EAI_AGAIN)\): getaddrinfo \w+ \[removed\]$/,
  );
  expect(mails).toEqual([]);
});

/** Starts a mail server that says nothing, or a line of its greeting a tenth of a second: no single step takes too long. */
async function slowServer(speaks: boolean) {
  const connections = new Set<Socket>();
  const slow = createServer((socket) => {
    connections.add(socket);
    const timer = speaks ? setInterval(() => socket.write("220-please wait\r\n"), 100) : undefined;
    socket
      .on("error", () => {})
      .on("close", () => {
        clearInterval(timer);
        connections.delete(socket);
      });
    socket.resume();
  });
  await new Promise<void>((resolve) => slow.listen(0, "127.0.0.1", resolve));
  const { port: slowPort } = slow.address() as AddressInfo;
  return {
    url: `smtp://127.0.0.1:${slowPort}`,
    server: `127.0.0.1:${slowPort}`,
    connections,
    close: () => slow.close(),
  };
}

test("a mail to a slow server is given up after its time, or when the service stops, and the connection is closed", async () => {
  const trickling = await slowServer(true);
  const sender = senderOf(trickling.url, createTransport, 1_000);
  const result = "the mail was not sent within 1 s";
  expect(await sender.send(RECEIVER, [message("x")], never)).toEqual({ isDelivered: false, result });
  expect(warned.splice(0)).toEqual([{ receiverId: "rcv_a", server: trickling.server, result }]);
  await expect.poll(() => trickling.connections.size, { timeout: 60_000 }).toBe(0);
  trickling.close();
  const silent = await slowServer(false);
  const stopping = new AbortController();
  const stopped = senderOf(silent.url).send(RECEIVER, [message("x")], stopping.signal);
  await expect.poll(() => silent.connections.size, { timeout: 60_000 }).toBe(1);
  stopping.abort();
  expect(await stopped).toEqual({ isDelivered: false, result: expect.stringContaining("EABORT") });
  expect(warned).toEqual([]);
  await expect.poll(() => silent.connections.size, { timeout: 60_000 }).toBe(0);
  silent.close();
});

test("a certificate that no authority has signed is refused, and so is a server without TLS that is not on this machine", async () => {
  const encrypted = new SMTPServer({
    secure: true,
    authOptional: true,
    onData: (stream, _s, done) => stream.on("end", done).resume(),
  });
  // The client ends the handshake.
  encrypted.on("error", () => {});
  await new Promise<void>((resolve) => encrypted.listen(0, "127.0.0.1", resolve));
  const { port: securePort } = encrypted.server.address() as AddressInfo;
  const sender = senderOf(`smtps://127.0.0.1:${securePort}`);
  expect(await sender.send(RECEIVER, [message("x")], never)).toEqual({
    isDelivered: false,
    result: expect.stringContaining("the mail was not sent"),
  });
  await sender.close();
  await new Promise<void>((resolve) => encrypted.close(() => resolve()));
  const options: Record<string, unknown>[] = [];
  const recording = ((given: Record<string, unknown>) => {
    options.push(given);
    return createTransport(given);
  }) as unknown as typeof createTransport;
  for (const url of ["smtp://mail.example.com", "smtp://localhost:2525", "smtps://[2001:db8::1]"]) {
    await senderOf(url, recording).close();
  }
  expect(options).toMatchObject([
    { host: "mail.example.com", port: 587, secure: false, requireTLS: true },
    { host: "localhost", port: 2525, secure: false, requireTLS: false },
    { host: "2001:db8::1", port: 465, secure: true, requireTLS: false },
  ]);
});

test("without a configured server every attempt fails", async () => {
  const result = { isDelivered: false, result: "warnings.smtp is not set" };
  expect(await mailSender(undefined).send(RECEIVER, [message("x")], never)).toEqual(result);
});
