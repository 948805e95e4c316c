import type { createTransport, SendMailOptions, Transporter } from "nodemailer";
import { isoTime } from "../api/time.ts";
import { printable } from "../api/wording.ts";
import { isLoopback } from "../config/formats.ts";
import type { Log } from "../telemetry/logger.ts";
import type { EventMessage, Sender } from "./dispatcher.ts";

const STEP_TIMEOUT_MS = 15_000;
/** Time for all steps of a mail. Less than the time for which a delivery is claimed, or another node sends it too. */
const TIMEOUT_MS = 45_000;
const MESSAGES_MAX = 100;

export interface MailOptions {
  createTransport: typeof createTransport;
  /** smtps://, or smtp:// with STARTTLS, which only a server on this machine may lack. */
  url: string;
  from: string;
  /** Makes what removes private text from the server's answers: people of organizations read them, too. */
  createScrub(texts: { secrets: readonly string[]; names: readonly string[] }): (text: string) => string;
  log: Log;
  timeoutMs?: number;
}

/** Sends events by mail, all that are due in one. Undefined: mail is not configured, and every attempt fails. */
export function mailSender(options: MailOptions | undefined): Sender {
  const mail = options && { ...options, transport: openTransport(options), scrub: scrubOf(options) };
  return {
    itemsMax: MESSAGES_MAX,
    isDigest: true,
    async send({ id: receiverId, target: to }, messages, stopping) {
      if (mail === undefined) return { isDelivered: false, result: "warnings.smtp is not set" };
      const { transport, from, scrub, url, log, timeoutMs = TIMEOUT_MS } = mail;
      const timeout = AbortSignal.timeout(timeoutMs);
      const signal = AbortSignal.any([stopping, timeout]);
      try {
        const sent = await transport.sendMail({ from, to, signal, ...mailOf(messages) });
        const { accepted = [], rejected = [], response = "" } = sent;
        const refused = rejected.length === 0 ? "" : `; addresses refused: ${rejected.length}`;
        const result = `${printable(scrub(response), 200)}${refused}`;
        if (refused !== "") log.warn({ receiverId, rejected, result }, "a mail server refused addresses of a mail");
        return { isDelivered: accepted.length > 0, result };
      } catch (error) {
        const result = `the mail was not sent ${timeout.aborted ? `within ${timeoutMs / 1000} s` : scrub(reasonOf(error))}`;
        if (!stopping.aborted)
          log.warn({ receiverId, server: new URL(url).host, result }, "a warning mail was not sent");
        return { isDelivered: false, result };
      }
    },
    close: async () => mail?.transport.close(),
  };
}

/** Returns the code of a failure and the server's answer. The code of the system or of TLS says more than that of nodemailer. */
function reasonOf(error: unknown): string {
  const { originalCode, code, response, reason, message } = error as Partial<Record<string, unknown>>;
  return `(${originalCode ?? code}): ${response ?? reason ?? message}`;
}

function loginOf(url: string): { user: string; pass: string } {
  const { username, password } = new URL(url);
  return { user: decodeURIComponent(username), pass: decodeURIComponent(password) };
}

function scrubOf({ createScrub, url }: MailOptions) {
  const { user, pass } = loginOf(url);
  // As AUTH PLAIN and AUTH LOGIN send them.
  const encoded = [`\0${user}\0${pass}`, pass].map((text) => Buffer.from(text).toString("base64"));
  return createScrub({ secrets: [pass, ...encoded], names: [user] });
}

function openTransport({ createTransport, url }: MailOptions): Transporter {
  const { protocol, hostname, port, username } = new URL(url);
  const secure = protocol === "smtps:";
  return createTransport({
    ...{ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) || (secure ? 465 : 587), secure },
    requireTLS: !secure && !isLoopback(hostname),
    ...(username !== "" && { auth: loginOf(url) }),
    ...{ connectionTimeout: STEP_TIMEOUT_MS, greetingTimeout: STEP_TIMEOUT_MS, socketTimeout: STEP_TIMEOUT_MS },
  } as Parameters<typeof createTransport>[0]);
}

function mailOf(messages: readonly EventMessage[]): SendMailOptions {
  // RFC 3834: no out-of-office reply answers it.
  const headers = { "Auto-Submitted": "auto-generated" };
  const [one] = messages;
  if (messages.length === 1 && one?.statement !== undefined) {
    return { headers, subject: one.text.slice(0, 150), text: one.statement };
  }
  const sorted = messages.toSorted((one, other) => one.event.madeAtMs - other.event.madeAtMs);
  const lines = sorted.map(({ text, event }) => ({ text, at: isoTime(event.madeAtMs), kind: event.kind }));
  const [first] = lines;
  const rows = lines.map(({ at, kind, text }) => `<li><p>${escaped(text)}</p><small>${at}, ${kind}</small></li>`);
  return {
    headers,
    subject:
      lines.length === 1 ? `Tollgate: ${(first?.text ?? "").slice(0, 150)}` : `Tollgate: ${lines.length} warnings`,
    text: lines.map(({ at, kind, text }) => `${text}\n(${at}, ${kind})\n`).join("\n"),
    html: `<ul>${rows.join("")}</ul>`,
  };
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (found) => `&#${found.charCodeAt(0)};`);
}
