import { type AddressInfo, createServer } from "node:net";
import { createTransport } from "nodemailer";
import { SMTPServer } from "smtp-server";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type EventRow, eventOf } from "../../src/credits/warnings.ts";
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
    if (password !== "p@ss word") return callback(new Error("Invalid password"));
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
      callback();
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
function message(text: string): EventMessage {
  const event: EventRow = eventOf("receiver.test", { organizationId: null, nowMs: 0, period: [text] }, {});
  return { id: text, event, text };
}
function senderOf(url: string) {
  return mailSender({ createTransport, url, from: "tollgate@example.com" });
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
  expect(content).toContain("Content-Type: text/html");
  expect(content).toContain("Acme &#60;&#38; co&#62;: 5 credits are left.");
});

test("many events are one digest", async () => {
  const sender = senderOf(`smtp://127.0.0.1:${port}`);
  const texts = Array.from({ length: 30 }, (_, index) => `Warning ${index}.`);
  expect(await sender.send(RECEIVER, texts.map(message), never)).toMatchObject({ isDelivered: true });
  await sender.close();
  expect(mails).toHaveLength(1);
  expect(mails[0]?.content).toContain("Subject: Tollgate: 30 warnings");
  for (const text of texts) expect(mails[0]?.content).toContain(text);
});

test("a refusal, a wrong password and an absent server fail, without the password in the result", async () => {
  const attempt = async (url: string, target = RECEIVER.target) => {
    const sender = senderOf(url);
    const { isDelivered, result } = await sender.send({ ...RECEIVER, target }, [message("x")], never);
    await sender.close();
    return [isDelivered, result];
  };
  expect(await attempt(`smtp://127.0.0.1:${port}`, "nobody@example.com")).toEqual([
    false,
    "the mail was not sent (EENVELOPE)",
  ]);
  expect(await attempt(`smtp://user:wrong@127.0.0.1:${port}`)).toEqual([false, "the mail was not sent (EAUTH)"]);
  const free = createServer();
  await new Promise<void>((resolve) => free.listen(0, "127.0.0.1", resolve));
  const { port: closed } = free.address() as AddressInfo;
  await new Promise<void>((resolve) => free.close(() => resolve()));
  expect(await attempt(`smtp://127.0.0.1:${closed}`)).toEqual([
    false,
    expect.stringMatching(/^the mail was not sent \((ECONNECTION|ESOCKET|ECONNREFUSED)\)$/),
  ]);
  expect(mails).toEqual([]);
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
    await mailSender({ createTransport: recording, url, from: "a@example.com" }).close();
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
