import { isIP } from "node:net";
import { parseTime } from "../api/time.ts";
import { parseDecimal } from "../credits/amount.ts";
import { isSupportedCurrency } from "../credits/money.ts";

export const DECIMAL_WORDS = "a decimal number, 0 or more, such as 0.25";

/** First segments of the service's own paths. A base path must not begin with one of them. */
export const OWN_SEGMENTS: ReadonlySet<string> = new Set([
  ...["v1", "v1alpha", "v1beta", "webhooks", "admin", "docs", "openapi.json", "healthz", "health", "readyz", "metrics"],
  ...["key", "organizations", "credits", "statements", "tokens", "requests", "models", "playground", "audit"],
  ...["vouchers", "warnings", "assets", "index.html", "favicon.svg", "theme.js"],
]);

/** The formats that the schema names: the wording of errors, and the check. */
export const FORMATS: Record<string, { words: string; test: (text: string) => boolean }> = {
  host: { words: "a host name or an IP address", test: isHost },
  "http-url": {
    words: "an http:// or https:// address without a user name or password",
    test: (text) => hasScheme(text, ["http:", "https:"]) && !hasCredentials(text),
  },
  issuer: {
    words: "an https:// address without a query (http:// on this machine only)",
    test: (text) => isSecureUrl(text) && !hasCredentials(text) && !/[?#\s]/.test(text),
  },
  "postgres-url": {
    words: "a postgres:// or postgresql:// address",
    // An @ after the host belongs to a password with an unescaped slash. Such an address would be misread, and shown.
    test: (text) => hasScheme(text, ["postgres:", "postgresql:"]) && !URL.parse(text)?.pathname.includes("@"),
  },
  "redis-url": { words: "a redis:// or rediss:// address, such as redis://127.0.0.1:6379/0", test: isRedisUrl },
  "smtp-url": {
    words: "an smtp:// or smtps:// address, such as smtps://user:password@mail.example.com",
    test: (text) => hasScheme(text, ["smtp:", "smtps:"]),
  },
  "mail-address": { words: "a mail address, such as tollgate@example.com", test: isMailAddress },
  "base-path": {
    words:
      "a path such as /tollgate, without a slash at its end, that does not begin with a path of the service itself",
    test: isBasePath,
  },
  path: { words: "text that is not empty", test: (text) => !text.includes("\0") },
  date: {
    words: "a date as YYYY-MM-DD",
    test: (text) => text.length === "YYYY-MM-DD".length && parseTime(text) !== undefined,
  },
  currency: {
    words:
      "a currency code such as eur; currencies with three decimals (BHD, IQD, JOD, KWD, LYD, OMR, TND), ISK and UGX are not supported",
    test: isSupportedCurrency,
  },
  decimal: { words: DECIMAL_WORDS, test: (text) => parseDecimal(text, 0) !== undefined },
  "decimal-above-0": { words: DECIMAL_WORDS, test: (text) => (parseDecimal(text, 30) ?? 0n) > 0n },
  "header-name": { words: "a header name", test: (text) => /^[0-9A-Za-z!#$%&'*+.^_`|~-]+$/.test(text) },
  "header-value": { words: "text in one line", test: (text) => /^[\t\x20-\x7e\x80-\xff]*$/.test(text) },
  proxies: { words: "addresses and networks", test: (text) => text.split(",").every((part) => isNetwork(part.trim())) },
};

function hasScheme(text: string, schemes: string[]): boolean {
  const url = URL.parse(text);
  return url !== null && schemes.includes(url.protocol) && (schemes.includes("postgres:") || url.hostname !== "");
}

/** Tests whether nobody can change what an address answers: by TLS, or because it is on this machine. */
export function isSecureUrl(text: string): boolean {
  const url = URL.parse(text);
  return url?.protocol === "https:" || (url?.protocol === "http:" && isLoopback(url.hostname));
}

export function isMailAddress(text: string): boolean {
  return /^[^\s@<>"(),:;]{1,64}@[^\s@<>"(),:;]{1,255}$/.test(text);
}

/** Tests the host of an address, or a host by itself. */
export function isLoopback(hostname: string): boolean {
  return /^(localhost|::1|\[::1\]|127(\.\d+){3})$/.test(hostname);
}

/** The path is the number of a database. */
function isRedisUrl(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || !hasScheme(text, ["redis:", "rediss:"])) return false;
  const hasOther = url.search !== "" || url.hash !== "" || !/^(\/\d{0,5})?$/.test(url.pathname);
  return !hasOther && isDecodable(url.username) && isDecodable(url.password);
}

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

function isBasePath(text: string): boolean {
  const isPath = /^(\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$/.test(text) && text.length <= 200;
  return isPath && !OWN_SEGMENTS.has(text.split("/")[1] ?? "");
}

function hasCredentials(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && (url.username !== "" || url.password !== "");
}

/** Text of digits and dots must be an IPv4 address. */
function isHost(text: string): boolean {
  if (/^[\d.]+$/.test(text) || text.includes(":")) return isIP(text) !== 0;
  return /^[0-9A-Za-z._-]{1,253}$/.test(text);
}

function isNetwork(text: string): boolean {
  if (["loopback", "linklocal", "uniquelocal"].includes(text)) return true;
  const [address = "", bits, ...rest] = text.split("/");
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128));
}
