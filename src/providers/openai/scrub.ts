/** Characters of an upstream's reason that are read, and that may be shown. */
const READ_MAX = 1_000;
const SHOWN_MAX = 300;
const REMOVED = "[removed]";

/** Patterns of private text. Each match is replaced by a mark before a caller sees an upstream's reason. */
const PRIVATE: readonly RegExp[] = [
  // Addresses: of the web, of people, of machines.
  /\b[a-z][a-z0-9+.-]{1,20}:\/\/[^\s"'`<>)\]}]+/gi,
  /[\w.+-]{1,64}@[\w-]{1,63}(\.[\w-]{1,63})+/g,
  /\b\d{1,3}(\.\d{1,3}){3}(:\d{1,5})?\b/g,
  /\[?\b[0-9a-f]{0,4}(:[0-9a-f]{0,4}){3,7}\b\]?(:\d{1,5})?/gi,
  /\blocalhost(:\d{1,5})?\b/gi,
  /\b[a-z0-9][a-z0-9-]*(\.[a-z0-9-]+)*:\d{2,5}\b/gi,
  /\b[a-z0-9-]+(\.[a-z0-9-]+)*\.(com|net|org|io|ai|dev|app|cloud|co|eu|us|uk|de|cn|internal|local|lan|corp|svc|intra|test|invalid)\b/gi,
  // Keys and whatever looks like one.
  /\b(bearer|basic)\s+[\w.~+/=-]{6,}/gi,
  /\b(sk|pk|rk|key|api|gsk|xai|hf|ghp|glpat|AKIA|AIza)[-_*][\w*.-]{4,}/gi,
  /\bAIza[\w-]{10,}/g,
  /\b\S{0,40}\*{3,}\S{0,40}/g,
  /\b(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{24,}\b/gi,
  // Accounts and organizations, by id or by the name that follows the word.
  /\b(org|proj|acct|user|team|ws|tenant|project|account|workspace)[-_][a-z0-9]{3,}[\w-]*/gi,
  /\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi,
  // Files of the upstream's machine.
  /(?<![\w.])(\/[\w.@-]+){2,}\/?(:\d+)*/g,
  /\b[a-z]:\\[^\s"']+/gi,
];

const NAMED =
  /\b(organi[sz]ation|account|project|tenant|workspace|team|subscription|customer|deployment)((?: (?:id|name))?\s*[:=]?\s*)("[^"]*"|'[^']*'|`[^`]*`|[A-Z][\w&.-]*(?: [A-Z][\w&.-]*)*|[\w-]*\d[\w-]*)/g;

/**
 * Makes a function that takes an upstream's reason and gives one line that a caller may see: without keys, addresses,
 * account and organization names, files and stacks, and at most 300 characters long. `secrets` are texts that are known to
 * be private, such as the provider's own key and host.
 */
export function createScrub(secrets: readonly string[]): (text: string) => string {
  const known = secrets.filter((secret) => secret.length >= 4).sort((one, other) => other.length - one.length);
  return (text) => {
    let rest = withoutStack(text.slice(0, READ_MAX));
    for (const secret of known) rest = rest.replaceAll(secret, REMOVED);
    rest = rest.replace(NAMED, (_all, word: string, between: string) => `${word}${between}${REMOVED}`);
    for (const pattern of PRIVATE) rest = rest.replace(pattern, REMOVED);
    return rest.length <= SHOWN_MAX ? rest : `${rest.slice(0, SHOWN_MAX - 1)}…`;
  };
}

function withoutStack(text: string): string {
  const end = text.search(/\n\s+at |Traceback \(most recent call last\)|\n\s*File "/);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters must not reach a log or a terminal
  return (end < 0 ? text : text.slice(0, end)).replace(/[\s\u0000-\u001f\u007f-\u009f]+/g, " ").trim();
}
