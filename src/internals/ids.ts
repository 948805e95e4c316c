import { randomUUID } from "node:crypto";

/**
 * A UUIDv7 (RFC 9562, section 5.7): the time in its first 48 bits, the rest random. Node fills its random UUIDs from a
 * store that costs a system call only now and then, so the random part is taken from one of these.
 */
export function uuidV7(nowMs: number): string {
  const time = nowMs.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

/** The name of a request in logs and answers. */
export function requestId(): string {
  return `req_${randomUUID().replaceAll("-", "")}`;
}
