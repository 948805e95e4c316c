import type { createTransport, Transporter } from "nodemailer";
import { isoTime } from "../api/time.ts";
import { isLoopback } from "../config/formats.ts";
import type { EventMessage, Sender } from "./dispatcher.ts";

const TIMEOUT_MS = 15_000;
const MESSAGES_MAX = 100;

export interface MailOptions {
  createTransport: typeof createTransport;
  /** smtps://, or smtp:// with STARTTLS, which only a server on this machine may lack. */
  url: string;
  from: string;
}

/** Sends events by mail, all that are due in one. Undefined: mail is not configured, and every attempt fails. */
export function mailSender(options: MailOptions | undefined): Sender {
  const transport = options && openTransport(options);
  return {
    itemsMax: MESSAGES_MAX,
    isDigest: true,
    async send({ target: to }, messages) {
      if (transport === undefined) return { isDelivered: false, result: "warnings.smtp is not set" };
      try {
        const { accepted, response } = await transport.sendMail({ from: options?.from, to, ...mailOf(messages) });
        return { isDelivered: (accepted?.length ?? 0) > 0, result: (response ?? "").slice(0, 200) };
      } catch (error) {
        const code = error instanceof Error && "code" in error ? ` (${String(error.code)})` : "";
        return { isDelivered: false, result: `the mail was not sent${code}` };
      }
    },
    close: async () => transport?.close(),
  };
}

function openTransport({ createTransport, url }: MailOptions): Transporter {
  const { protocol, hostname, port, username, password } = new URL(url);
  const secure = protocol === "smtps:";
  return createTransport({
    ...{ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) || (secure ? 465 : 587), secure },
    requireTLS: !secure && !isLoopback(hostname),
    ...(username !== "" && { auth: { user: decodeURIComponent(username), pass: decodeURIComponent(password) } }),
    ...{ connectionTimeout: TIMEOUT_MS, greetingTimeout: TIMEOUT_MS, socketTimeout: TIMEOUT_MS },
  } as Parameters<typeof createTransport>[0]);
}

function mailOf(messages: readonly EventMessage[]): Record<"subject" | "text" | "html", string> {
  const lines = messages.map(({ text, event }) => ({ text, at: isoTime(event.madeAtMs), kind: event.kind }));
  const [first] = lines;
  const rows = lines.map(({ at, kind, text }) => `<li><p>${escaped(text)}</p><small>${at}, ${kind}</small></li>`);
  return {
    subject:
      lines.length === 1 ? `Tollgate: ${(first?.text ?? "").slice(0, 150)}` : `Tollgate: ${lines.length} warnings`,
    text: lines.map(({ at, kind, text }) => `${text}\n(${at}, ${kind})\n`).join("\n"),
    html: `<ul>${rows.join("")}</ul>`,
  };
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (found) => `&#${found.charCodeAt(0)};`);
}
