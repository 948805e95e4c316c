import ipaddr from "ipaddr.js";
import type { RequestMessage } from "./request.ts";

/** In characters. The size of `data:` URLs is limited by that of the request body. */
const ADDRESS_LENGTH_MAX = 8_192;

/** Raster formats. SVG is excluded, because it can reference other addresses that its renderer would fetch. */
const MEDIA_TYPES = ["png", "jpeg", "jpg", "gif", "webp", "heic", "heif", "avif", "bmp", "tiff"];
const DATA_HEAD = new RegExp(`^data:image/(?:${MEDIA_TYPES.join("|")});base64,`);
const DATA_HEAD_LENGTH_MAX = 64;
/** Searching for one invalid character takes a single pass without backtracking. */
const NO_BASE64 = /[^A-Za-z0-9+/]/;

const EXPECTED = "Expected a public https:// address, or data:image/…;base64,…";

/**
 * Validates the address of an image: a `data:` URL, or a public `https:` address, which the model's provider fetches.
 * Returns the problem as the end of a sentence, or undefined. Host names are not resolved, so a name that resolves to a
 * private address is not detected.
 */
export function imageAddressFault(address: string): string | undefined {
  if (/^\s*data:/i.test(address.slice(0, DATA_HEAD_LENGTH_MAX))) return dataFault(address);
  if (address.length > ADDRESS_LENGTH_MAX) return `the address is longer than ${ADDRESS_LENGTH_MAX} characters`;
  const url = URL.parse(address);
  if (url === null) return `not a valid URL. ${EXPECTED}`;
  if (url.protocol !== "https:") return `the scheme '${url.protocol.slice(0, 20)}' is not allowed. ${EXPECTED}`;
  if (url.username !== "" || url.password !== "") return "the address must not contain a user name or password";
  if (url.port !== "") return "the address must not contain a port";
  return isPublicHost(url.hostname) ? undefined : `the address is not public. ${EXPECTED}`;
}

/** True if a valid image address is a `data:` URL. */
export function isImageData(address: string): boolean {
  return address.startsWith("data:");
}

/** Returns the path of the first image with an `https:` address, such as `messages[0].content[1].image_url.url`. */
export function firstImageAddress(messages: readonly RequestMessage[]): string | undefined {
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    const part = content.findIndex((one) => one.type === "image_url" && !isImageData(one.image_url.url));
    if (part >= 0) return `messages[${index}].content[${part}].image_url.url`;
  }
  return undefined;
}

/** Special-use domains (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal) and common domains of private networks. */
const PRIVATE_DOMAINS =
  /(^|\.)(localhost|localdomain|local|internal|intranet|private|corp|home|lan|svc|test|example|invalid|onion|alt|arpa)$/;

/**
 * True if the name or address of a host is public. The host must come from a parsed URL, where decimal, octal,
 * hexadecimal and short IPv4 addresses are already normalized.
 */
export function isPublicHost(hostname: string): boolean {
  const host = hostname.replace(/\.$/, "").toLowerCase();
  const literal = /^\[(.*)\]$/.exec(host)?.[1] ?? host;
  if (ipaddr.isValid(literal)) return isPublicAddress(ipaddr.parse(literal));
  return host.includes(".") && !host.endsWith(".") && !PRIVATE_DOMAINS.test(host);
}

/** IANA has assigned only 2000::/3 for public use; addresses outside are rejected. */
const PUBLIC_V6: [ipaddr.IPv6, number] = [ipaddr.IPv6.parse("2000::"), 3];

function isPublicAddress(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  if (address.range() !== "unicast") return false;
  return address instanceof ipaddr.IPv4 || address.match(PUBLIC_V6);
}

function dataFault(address: string): string | undefined {
  const [head] = DATA_HEAD.exec(address.slice(0, DATA_HEAD_LENGTH_MAX)) ?? [];
  if (head === undefined) {
    return `expected data:image/…;base64,… with one of the image types ${MEDIA_TYPES.join(", ")}`;
  }
  const paddingLength = address.endsWith("==") ? 2 : address.endsWith("=") ? 1 : 0;
  const digits = address.slice(head.length, address.length - paddingLength);
  const isPadded = paddingLength === 0 || (digits.length + paddingLength) % 4 === 0;
  const isWhole = digits.length > 0 && digits.length % 4 !== 1 && isPadded;
  return isWhole && !NO_BASE64.test(digits) ? undefined : "the image is not valid base64";
}
