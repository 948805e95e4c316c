import type { Receiver, WarningDelivery } from "../api/admin/receiver.ts";
import { isoTime } from "../api/time.ts";
import { isLoopback, isMailAddress } from "../config/formats.ts";
import type { EventRow } from "../credits/warnings.ts";
import type { DeliveryRow, EventDelivery, ReceiverRow } from "../stores/queries/events.ts";
import { entityOf } from "./entity.ts";
import { eventText } from "./event-texts.ts";
import { idOfTexts, type RandomBytes } from "./token.ts";

/** All events of each such time arrive in one mail, once it has ended. */
const DIGEST_MS = 60_000;
const SECRET_MARK = "whsec_";

/** Returns the id of an event, the same in every delivery. */
export function eventIdOf(key: string): string {
  return idOfTexts("evt", key);
}

/** Makes a delivery. Its id follows from the event and the receiver, so that two nodes make only one. */
export function deliveryOf({ key }: EventRow, { id, format }: ReceiverRow, nowMs: number): DeliveryRow {
  return {
    ...{ id: idOfTexts("dlv", id, key), receiverId: id, eventKey: key, state: "waiting", attempts: 0 },
    nextAtMs: format === "mail" ? (Math.floor(nowMs / DIGEST_MS) + 1) * DIGEST_MS : nowMs,
    ...{ createdAtMs: nowMs, attemptedAtMs: null, result: null },
  };
}

/** Makes a secret in the notation of Standard Webhooks. */
export function makeSigningSecret(random: RandomBytes): string {
  return `${SECRET_MARK}${Buffer.from(random(32)).toString("base64")}`;
}

/** Returns the secrets that sign a delivery now, as bytes. */
export function signingKeys({ secrets }: ReceiverRow, nowMs: number): Buffer[] {
  const valid = secrets.filter(({ endsAtMs }) => endsAtMs === null || endsAtMs > nowMs);
  return valid.map(({ secret }) => Buffer.from(secret.slice(SECRET_MARK.length), "base64"));
}

/** Returns why nothing may be sent to a target, which is checked again when it is resolved. No organization has private hosts. */
export function targetFault(
  { organizationId, format, target }: Pick<ReceiverRow, "organizationId" | "format" | "target">,
  isPublicHost: (hostname: string) => boolean,
  allowsPrivate: boolean,
): string | undefined {
  if (format === "mail") {
    return isMailAddress(target) ? undefined : "expected a mail address such as ops@example.com";
  }
  if (isMailAddress(target))
    return "expected an https:// address; to send mail, set the format to mail (--format mail)";
  const url = URL.parse(target);
  const takesPrivate = allowsPrivate && organizationId === null;
  const expected = `expected an https:// address${takesPrivate ? ", or an http:// address on this machine" : ""}`;
  if (url === null || !/^https?:$/.test(url.protocol)) return expected;
  if (url.username !== "" || url.password !== "") return "expected an address without a user name or password";
  if (url.protocol === "http:" && !isLoopback(url.hostname)) return expected;
  if (takesPrivate || (url.protocol === "https:" && isPublicHost(url.hostname))) return undefined;
  return "expected a public https:// address; warnings.allowPrivateAddresses also allows private ones, and http:// on this machine, to receivers of the service";
}

export function toReceiver({ secrets: _secrets, failingSinceMs, disabledAtMs, ...row }: ReceiverRow): Receiver {
  const status = disabledAtMs !== null ? "disabled" : failingSinceMs !== null ? "failing" : "active";
  return { ...entityOf("receiver", row), status, failing_since: isoTime(failingSinceMs) };
}

/** Shortens the path of a webhook's address, which may be its secret, for those who may not change it. */
export function withShortTarget(receiver: Receiver): Receiver {
  const url = receiver.format === "mail" ? null : URL.parse(receiver.target);
  return url === null ? receiver : { ...receiver, target: `${url.origin}${url.pathname.slice(0, 5)}…` };
}

export function toDelivery({ delivery, event }: EventDelivery): WarningDelivery {
  const { eventKey, nextAtMs, ...row } = delivery;
  const { kind, organizationId, data } = event;
  return {
    ...entityOf("delivery", { ...row, kind, organizationId, data }),
    ...{ event_id: eventIdOf(eventKey), text: eventText(event, null) },
    next_attempt_at: row.state === "waiting" ? isoTime(nextAtMs) : null,
  };
}
