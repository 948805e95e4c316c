import { isIP } from "node:net";

const IPV4_WITH_PORT = /^(\d+\.\d+\.\d+\.\d+)(?::\d+)?$/;
const IPV6_WITH_PORT = /^\[([^\]]+)\](?::\d+)?$/;
/** IPv4-mapped IPv6 (RFC 4291, section 2.5.5.2), as `URL` writes it. */
const MAPPED = /^::ffff:([\da-f]{1,4}):([\da-f]{1,4})$/;
const OTHER_TEXT_LENGTH_MAX = 64;

/**
 * The key under which requests of a client address are counted. An IPv6 subscriber holds at least a /64 (RFC 6177), so
 * all addresses of a /64 share one key. An IPv4-mapped IPv6 address counts as its IPv4 address. A port that a proxy
 * wrote behind the address is ignored. Text that is not an address is its own key, cut to a fixed length.
 */
export function clientAddressKey(address: string): string {
  const text = IPV4_WITH_PORT.exec(address)?.[1] ?? IPV6_WITH_PORT.exec(address)?.[1] ?? address;
  const [withoutZone = ""] = text.split("%");
  if (isIP(withoutZone) === 6) return keyOfIPv6(withoutZone);
  return text.slice(0, OTHER_TEXT_LENGTH_MAX);
}

function keyOfIPv6(address: string): string {
  // The URL parser writes every spelling of an address in the one canonical form (RFC 5952).
  const canonical = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [, high, low] = MAPPED.exec(canonical) ?? [];
  if (high !== undefined && low !== undefined) return ipv4Of(Number.parseInt(high, 16), Number.parseInt(low, 16));
  const [before = "", after] = canonical.split("::");
  const head = before === "" ? [] : before.split(":");
  const tail = after === undefined || after === "" ? [] : after.split(":");
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => "0");
  return `${[...head, ...zeros, ...tail].slice(0, 4).join(":")}::/64`;
}

function ipv4Of(high: number, low: number): string {
  return [high >> 8, high & 255, low >> 8, low & 255].join(".");
}
