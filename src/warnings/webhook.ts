import { createHmac } from "node:crypto";
import { type LookupAddress, lookup } from "node:dns";
import type { LookupFunction } from "node:net";
import { Agent, type Dispatcher, request } from "undici";
import { eventIdOf, signingKeys, targetFault } from "../admin/receivers.ts";
import { isPublicHost } from "../api/chat/image-address.ts";
import { isoTime } from "../api/time.ts";
import type { ReceiverRow } from "../stores/queries/events.ts";
import type { AttemptResult, Sender } from "./dispatcher.ts";

const TIMEOUT_MS = 15_000;
/** A receiver's answer is read up to this size, so that its connection can be used again, and dropped. */
const ANSWER_BYTES_MAX = 16 * 1024;
const AT_ONCE_MAX = 10;

export interface WebhookOptions {
  allowsPrivate: () => boolean;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Time for an answer. */
  timeoutMs?: number;
  /** Resolves host names. */
  resolve?: typeof lookup;
}

/** Sends events as POST requests, signed as Standard Webhooks demands. Each node has connections of its own. */
export function webhookSender(options: WebhookOptions): Sender {
  const agentOf = (allowsPrivate: () => boolean) =>
    new Agent({ connect: { lookup: guardedLookup({ ...options, allowsPrivate }) }, connections: AT_ONCE_MAX });
  const [ofService, ofOrganizations] = [agentOf(options.allowsPrivate), agentOf(() => false)];
  return {
    itemsMax: AT_ONCE_MAX,
    isDigest: false,
    async send(receiver, [{ event, text } = { event: undefined, text: "" }], signal) {
      if (event === undefined) throw new Error("There is no event to send");
      const fault = targetFault(receiver, isPublicHost, options.allowsPrivate());
      if (fault !== undefined) return { isDelivered: false, result: fault };
      const { kind: type, madeAtMs, data } = event;
      const content =
        receiver.format === "slack" ? { text: slackText(text) } : { type, timestamp: isoTime(madeAtMs), data };
      const body = JSON.stringify(content);
      const headers = webhookHeaders(receiver, eventIdOf(event.key), body, options.clock());
      const dispatcher = receiver.organizationId === null ? ofService : ofOrganizations;
      return post(receiver.target, { dispatcher, headers, body }, signal, options.timeoutMs ?? TIMEOUT_MS);
    },
    close: async () => void (await Promise.all([ofService.destroy(), ofOrganizations.destroy()])),
  };
}

/** Escapes what Slack would read as a link or a mention: names in a text may be chosen by others than its readers. */
function slackText(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Returns the headers of a delivery, with a signature by each valid secret. */
function webhookHeaders(receiver: ReceiverRow, id: string, body: string, nowMs: number): Record<string, string> {
  const timestamp = Math.floor(nowMs / 1000);
  const sign = (key: Buffer) => createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
  return {
    "content-type": "application/json",
    "user-agent": "tollgate",
    "webhook-id": id,
    "webhook-timestamp": String(timestamp),
    "webhook-signature": signingKeys(receiver, nowMs)
      .map((key) => `v1,${sign(key)}`)
      .join(" "),
  };
}

/** Redirects are not followed: they could lead to an address that was not checked when the receiver was created. */
async function post(
  url: string,
  options: { dispatcher: Dispatcher; headers: Record<string, string>; body: string },
  stopping: AbortSignal,
  timeoutMs: number,
): Promise<AttemptResult> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const signal = AbortSignal.any([stopping, timeout]);
  try {
    const { statusCode, body } = await request(url, { method: "POST", ...options, signal });
    void body.dump({ limit: ANSWER_BYTES_MAX, signal }).catch(() => {});
    return { isDelivered: statusCode >= 200 && statusCode < 300, result: `HTTP ${statusCode}` };
  } catch (error) {
    if (timeout.aborted) return { isDelivered: false, result: `no answer within ${timeoutMs / 1000} s` };
    return { isDelivered: false, result: failureText(error) };
  }
}

/** Returns the reason of a failed connection, without the address, which may contain a secret. */
function failureText(error: unknown): string {
  if (error instanceof PrivateAddressError) return error.message;
  const code = error instanceof Error && "code" in error ? ` (${String(error.code)})` : "";
  return `the connection failed${code}`;
}

class PrivateAddressError extends Error {
  override readonly name = "PrivateAddressError";
}

/** Resolves names as the system does, but refuses private addresses: a public name can lead to one at any time. */
function guardedLookup({ allowsPrivate, resolve = lookup }: WebhookOptions): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, { ...options, all: true }, (error, addresses: LookupAddress[]) => {
      const refused = allowsPrivate() ? undefined : addresses?.find(({ address }) => !isPublicHost(address));
      // Without the address, which would show an owner the names of the operator's network.
      const failure = error ?? (refused && new PrivateAddressError("the host has a private address"));
      if (options.all === true) return callback(failure ?? null, failure ? [] : addresses);
      const [first = { address: "", family: 0 }] = failure ? [] : addresses;
      callback(failure ?? null, first.address, first.family);
    });
  };
}
