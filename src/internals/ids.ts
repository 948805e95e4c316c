import { randomFillSync } from "node:crypto";

const ID_BYTES = 16;
const TIME_BYTES = 6;

/** The next ids: to ask the system for each of them would take longer than all the rest. */
const ids = Buffer.alloc(256 * ID_BYTES);
let at = ids.length;

/** Makes the digits of a UUIDv7 (RFC 9562, section 5.7): the time in its first 48 bits, the rest random. */
function digitsV7(nowMs: number): string {
  if (at === ids.length) {
    randomFillSync(ids);
    at = 0;
  }
  ids.writeUIntBE(nowMs, at, TIME_BYTES);
  const [version, variant] = [at + TIME_BYTES, at + TIME_BYTES + 2];
  ids[version] = 0x70 | (ids.readUInt8(version) & 0x0f);
  ids[variant] = 0x80 | (ids.readUInt8(variant) & 0x3f);
  at += ID_BYTES;
  return ids.toString("hex", at - ID_BYTES, at);
}

/** Makes a UUIDv7. */
export function uuidV7(nowMs: number): string {
  const digits = digitsV7(nowMs);
  const [low, mid, high] = [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16)];
  return `${low}-${mid}-${high}-${digits.slice(16, 20)}-${digits.slice(20)}`;
}

/** Makes the id of a request for logs and responses, with its time, so that a search for it reads a few minutes only. */
export function requestId(nowMs: number): string {
  return `req_${digitsV7(nowMs)}`;
}
