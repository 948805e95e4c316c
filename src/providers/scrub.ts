import { readFileSync } from "node:fs";
import { firstAddress } from "../api/chat/image-address.ts";
import { detailsOf, parseJson, textOf } from "../api/json.ts";
import type { UpstreamRequest } from "./provider.ts";
import type { Environment, ProviderSettings } from "./settings.ts";

/** Removes private text from an upstream's reason, the message of its error. */
export interface Scrub {
  (text: string): string;
  /** Message that replaces the upstream's reasons if none of them may be shown. */
  readonly reason?: string;
}

/** Limits of an upstream's reason, in characters: of the part that is read, and of the part that may be shown. */
const READ_MAX = 1_000;
const SHOWN_MAX = 300;
const REMOVED = "[removed]";

/** Patterns of private text. Each match is replaced before a caller sees an upstream's reason. */
const PRIVATE: readonly RegExp[] = [
  // URLs, email addresses, IP addresses and host names.
  /\b[a-z][a-z0-9+.-]{1,20}:\/\/[^\s"'`<>)\]}]+/gi,
  /[\w.+-]{1,64}@[\w-]{1,63}(\.[\w-]{1,63})+/g,
  /\b\d{1,3}(\.\d{1,3}){3}(:\d{1,5})?\b/g,
  /\[?\b[0-9a-f]{0,4}(:[0-9a-f]{0,4}){3,7}\b\]?(:\d{1,5})?/gi,
  /\blocalhost(:\d{1,5})?\b/gi,
  /\b[a-z0-9][a-z0-9-]*(\.[a-z0-9-]+)*:\d{2,5}\b/gi,
  /\b[a-z0-9-]+(\.[a-z0-9-]+)*\.(com|net|org|io|ai|dev|app|cloud|co|eu|us|uk|de|cn|internal|local|lan|corp|svc|intra|test|invalid)\b/gi,
  // Keys, and texts that look like keys.
  /\b(bearer|basic)\s+[\w.~+/=-]{6,}/gi,
  /\b(sk|pk|rk|key|api|gsk|xai|hf|ghp|glpat|AKIA|AIza)[-_*][\w*.-]{4,}/gi,
  /\bAIza[\w-]{10,}/g,
  /\b\S{0,40}\*{3,}\S{0,40}/g,
  /\b(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{24,}\b/gi,
  // Ids of accounts and organizations.
  /\b(org|proj|acct|user|team|ws|tenant|project|account|workspace)[-_][a-z0-9]{3,}[\w-]*/gi,
  /\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi,
  // Paths of files on the upstream's machine.
  /(?<![\w.])(\/[\w.@-]+){2,}\/?(:\d+)*/g,
  /\b[a-z]:\\[^\s"']+/gi,
];

/** Names of accounts and organizations, which follow a word for them. */
const NAMED =
  /\b(organi[sz]ation|account|project|tenant|workspace|team|subscription|customer|deployment)((?: (?:id|name))?\s*[:=]?\s*)("[^"]*"|'[^']*'|`[^`]*`|[A-Z][\w&.-]*(?: [A-Z][\w&.-]*)*|[\w-]*\d[\w-]*)/g;

/** Texts that are known to be private. Those under 4 characters are ignored. */
export interface PrivateTexts {
  /** Removed in parts. */
  secrets: readonly string[];
  /** Names of accounts and machines, removed where they are whole: their parts may be ordinary words. */
  names: readonly string[];
}

/** Creates a function that reduces an upstream's reason to one line of 300 characters without private texts. */
export function createScrub({ secrets, names }: PrivateTexts): (text: string) => string {
  const isShort = ({ length }: string) => length < PART_CHARACTERS;
  const whole = [...names, ...secrets.filter(isShort)]
    .filter(({ length }) => length >= NAME_CHARACTERS_MIN)
    .sort((one, other) => other.length - one.length);
  const withoutParts = partsRemover(secrets);
  return (text) => {
    let shown = withoutParts(withoutStack(text.slice(0, READ_MAX)));
    for (const name of whole) shown = shown.replaceAll(name, REMOVED);
    shown = shown.replace(NAMED, (_all, word: string, between: string) => `${word}${between}${REMOVED}`);
    for (const pattern of PRIVATE) shown = shown.replace(pattern, REMOVED);
    return shown.length <= SHOWN_MAX ? shown : `${shown.slice(0, SHOWN_MAX - 1)}…`;
  };
}

const NAME_CHARACTERS_MIN = 4;
/** Parts of a secret of this length are removed, and longer ones with them. */
const PART_CHARACTERS = 8;
/** Space, and characters without a width. */
const BLANK = /[\s\p{Cc}\p{Cf}]/u;

/** Returns a remover of parts of secrets, of any case and spacing: upstreams quote keys shortened or in groups. */
function partsRemover(secrets: readonly string[]): (text: string) => string {
  const parts = new Set(secrets.flatMap((secret) => partsOf(inked(secret).ink)));
  if (parts.size === 0) return (text) => text;
  return (text) => {
    const { ink, places } = inked(text);
    let shown = "";
    let end = 0;
    for (const [at, part] of partsOf(ink).entries()) {
      if (!parts.has(part)) continue;
      const [first = 0, last = 0] = [places[at], places[at + PART_CHARACTERS - 1]];
      if (first >= end) shown += `${text.slice(end, first)}${REMOVED}`;
      end = last + 1;
    }
    return shown + text.slice(end);
  };
}

function inked(text: string): { ink: string; places: number[] } {
  const places: number[] = [];
  let ink = "";
  for (let place = 0; place < text.length; place += 1) {
    const character = text.charAt(place);
    if (BLANK.test(character)) continue;
    const lower = character.toLowerCase();
    ink += lower.length === 1 ? lower : character;
    places.push(place);
  }
  return { ink, places };
}

function partsOf(ink: string): string[] {
  const count = Math.max(0, ink.length - PART_CHARACTERS + 1);
  return Array.from({ length: count }, (_, at) => ink.slice(at, at + PART_CHARACTERS));
}

/** Returns the scrub for a request. With an image's address it hides all reasons: they may tell what is there. */
export function scrubFor({ messages }: Pick<UpstreamRequest, "messages">, scrub: Scrub): Scrub {
  if (firstAddress(messages) === undefined) return scrub;
  const reason =
    "The provider refused a request with an image address, and its reason is not shown. Send the image as data:image/…;base64,… to see the reason.";
  return Object.assign((text: string) => scrub(text), { reason });
}

/** Returns a scrub that also removes the credentials among the headers of a request, such as a token fetched for it. */
export function withoutHeaders(scrub: Scrub, headers: readonly string[]): Scrub {
  const values = headers.filter((_text, index) => CREDENTIAL.test(headers[index - 1] ?? "") && index % 2 === 1);
  return Object.assign((text: string) => scrub(partsRemover(values)(text.slice(0, READ_MAX))), scrub);
}

const CREDENTIAL = /auth|key|token|secret|cookie/i;

/** Returns the private texts of a provider's settings, and of the proxies that it is reached through. */
export function privateTextsOf(settings: ProviderSettings, environment: Environment): PrivateTexts {
  const { apiKey, accessKeyId, secretAccessKey, sessionToken, headers, credentialsFile } = settings;
  const { baseUrl, project, resourceName } = settings;
  const base = baseUrl === null ? null : URL.parse(baseUrl);
  const proxies = Object.entries(environment).flatMap(([name, address]) => {
    return (/_proxy$/i.test(name) && address !== undefined && URL.parse(address)) || [];
  });
  const logins = proxies.flatMap(({ username, password }) => [username, password]);
  const identity = credentialsFile === undefined ? [] : secretsOfFile(credentialsFile);
  const secrets = [apiKey, accessKeyId, secretAccessKey, sessionToken, ...Object.values(headers), ...identity];
  return {
    secrets: [
      ...secrets.filter((secret) => typeof secret === "string"),
      ...logins,
      ...(base?.searchParams.values() ?? []),
    ],
    names: [base?.host, base?.hostname, project, resourceName].filter((name) => name !== undefined),
  };
}

const SECRET_FIELDS = ["private_key", "private_key_id", "client_secret", "refresh_token"];

function secretsOfFile(path: string): string[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    // The provider refuses to work without it.
    return [];
  }
  const fields = detailsOf(parseJson(text));
  return SECRET_FIELDS.flatMap((name) => textOf(fields[name]) ?? []);
}

function withoutStack(text: string): string {
  const end = text.search(/\n\s+at |Traceback \(most recent call last\)|\n\s*File "/);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters must not reach a log or a terminal
  return (end < 0 ? text : text.slice(0, end)).replace(/[\s\u0000-\u001f\u007f-\u009f]+/g, " ").trim();
}
