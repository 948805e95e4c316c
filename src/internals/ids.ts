import { randomUUID } from "node:crypto";

/**
 * Makes a UUIDv7 (RFC 9562, section 5.7): the time in its first 48 bits, the rest random. The random part comes from
 * `randomUUID`, which Node fills from a cache that rarely needs a system call.
 */
export function uuidV7(nowMs: number): string {
  const time = nowMs.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

/** Makes the id of a request for logs and responses, with its time, so that a search for it reads a few minutes only. */
export function requestId(nowMs: number): string {
  return `req_${uuidV7(nowMs).replaceAll("-", "")}`;
}
