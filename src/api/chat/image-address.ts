import ipaddr from "ipaddr.js";
import { refuse } from "../validation.ts";
import type { ContentPart, RequestMessage } from "./request.ts";

type FilePart = Extract<ContentPart, { type: "file" }>;

/** In characters. The size of `data:` URLs is limited by that of the request body. */
const ADDRESS_LENGTH_MAX = 8_192;

/** Raster formats. SVG is excluded, because it can reference other addresses that its renderer would fetch. */
const MEDIA_TYPES = ["png", "jpeg", "jpg", "gif", "webp", "heic", "heif", "avif", "bmp", "tiff"];
const DATA_HEAD = new RegExp(`^data:image/(?:${MEDIA_TYPES.join("|")});base64,`);
const DATA_HEAD_LENGTH_MAX = 64;
/** Searching for one invalid character takes a single pass without backtracking. */
const NO_BASE64 = /[^A-Za-z0-9+/]/;

const EXPECTED = "Expected a public https:// address, or data:image/…;base64,…";

/** Returns the fault of an image's address as the end of a sentence, or undefined. Host names are not resolved. */
export function imageAddressFault(address: string): string | undefined {
  if (!isDataAddress(address)) return addressFault(address, EXPECTED);
  if (DATA_HEAD.test(address.slice(0, DATA_HEAD_LENGTH_MAX))) return base64Fault(address, "image");
  return `expected data:image/…;base64,… with one of the image types ${MEDIA_TYPES.join(", ")}`;
}

function base64Fault(dataAddress: string, what: string): string | undefined {
  return isBase64(dataAddress.slice(dataAddress.indexOf(",") + 1)) ? undefined : `the ${what} is not valid base64`;
}

function isDataAddress(address: string): boolean {
  return /^\s*data:/i.test(address.slice(0, DATA_HEAD_LENGTH_MAX));
}

function addressFault(address: string, expected: string): string | undefined {
  if (address.length > ADDRESS_LENGTH_MAX) return `the address is longer than ${ADDRESS_LENGTH_MAX} characters`;
  const url = URL.parse(address);
  if (url === null) return `not a valid URL. ${expected}`;
  if (url.protocol !== "https:") return `the scheme '${url.protocol.slice(0, 20)}' is not allowed. ${expected}`;
  if (url.username !== "" || url.password !== "") return "the address must not contain a user name or password";
  if (url.port !== "") return "the address must not contain a port";
  return isPublicHost(url.hostname) ? undefined : `the address is not public. ${expected}`;
}

/** Returns the path of the first `https:` address of a part, such as `messages[0].content[1].image_url.url`. */
export function firstAddress(messages: readonly RequestMessage[]): string | undefined {
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    for (const [part, one] of content.entries()) {
      const field = addressField(one);
      if (field !== undefined) return `messages[${index}].content[${part}].${field}`;
    }
  }
  return undefined;
}

function addressField(part: ContentPart): string | undefined {
  const isFetched = (address: string | undefined) => address !== undefined && !isDataAddress(address);
  if (part.type === "image_url") return isFetched(part.image_url.url) ? "image_url.url" : undefined;
  if (part.type === "video_url") return isFetched(part.video_url.url) ? "video_url.url" : undefined;
  return part.type === "file" && isFetched(part.file.file_url) ? "file.file_url" : undefined;
}

/** Checks the parts of messages that are not text. Throws InvalidRequestError with the wire's name of the field. */
export function checkParts(messages: readonly RequestMessage[], paramOf: (param: string) => string): void {
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    for (const [place, part] of content.entries()) {
      const found = partFault(part);
      if (found !== undefined) {
        const param = paramOf(`messages[${index}].content[${place}].${found.field}`);
        const code = found.isUnsupported ? "unsupported_value" : "invalid_value";
        refuse({ code, param, message: `Invalid '${param}': ${found.fault}.` });
      }
      // OpenRouter's clients send the address of a file as its data.
      if (part.type !== "file" || part.file.file_data?.startsWith("data:") !== false) continue;
      const { file_data: file_url, ...file } = part.file;
      part.file = { ...file, file_url };
    }
  }
}

const FILE_HEAD = /^data:[a-z]+\/[\w.+-]{1,100};base64,/;
const EXPECTED_FILE = "Expected a public https:// address, or data:…;base64,…";
const AUDIO_FORMAT = /^[a-z0-9]{2,10}$/;

/** Returns the fault of a content part that is not text: its field, and a sentence that follows the field's name. */
function partFault(part: ContentPart): { field: string; fault: string; isUnsupported?: true } | undefined {
  const at = (field: string, fault: string | undefined) => (fault === undefined ? undefined : { field, fault });
  switch (part.type) {
    case "image_url":
      return at("image_url.url", imageAddressFault(part.image_url.url));
    case "video_url":
      return at("video_url.url", dataOrAddressFault(part.video_url.url, "video"));
    case "input_audio": {
      const { data, format } = part.input_audio;
      if (!AUDIO_FORMAT.test(format)) return at("input_audio.format", "expected a format such as 'wav' or 'mp3'");
      return isBase64(data) ? undefined : at("input_audio.data", "the audio is not valid base64");
    }
    case "file":
      return fileFault(part.file);
    default:
      return undefined;
  }
}

function fileFault({ file_id: id, file_data: data, file_url: url }: FilePart["file"]): ReturnType<typeof partFault> {
  if (id !== undefined) {
    const fault = "files that were uploaded to a provider are not supported. Send the file as file_data";
    return { field: "file.file_id", fault, isUnsupported: true };
  }
  if ((data === undefined) === (url === undefined)) return { field: "file", fault: "expected file_data or file_url" };
  const fault = data === undefined ? addressFault(url ?? "", EXPECTED_FILE) : dataOrAddressFault(data, "file");
  return fault === undefined ? undefined : { field: data === undefined ? "file.file_url" : "file.file_data", fault };
}

function dataOrAddressFault(address: string, what: string): string | undefined {
  return FILE_HEAD.test(address.slice(0, 128)) ? base64Fault(address, what) : addressFault(address, EXPECTED_FILE);
}

/** Special-use domains (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal) and common domains of private networks. */
const PRIVATE_DOMAINS =
  /(^|\.)(localhost|localdomain|local|internal|intranet|private|corp|home|lan|svc|test|example|invalid|onion|alt|arpa)$/;

/** True if the name or address of a host, which must come from a parsed URL, is public. */
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

function isBase64(text: string): boolean {
  const paddingLength = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const digits = text.slice(0, text.length - paddingLength);
  const isPadded = paddingLength === 0 || (digits.length + paddingLength) % 4 === 0;
  return digits.length > 0 && digits.length % 4 !== 1 && isPadded && !NO_BASE64.test(digits);
}
