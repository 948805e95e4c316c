/** How fields and values are named in messages to callers. What a caller sent is shown shortened and on one line. */

const SHOWN_CHARACTERS_MAX = 64;
const PATH_CHARACTERS_MAX = 128;

/** A JSON pointer as the path a caller knows: "/messages/0/role" is `messages[0].role`. */
export function pathOf(pointer: string): string {
  let path = "";
  for (const raw of pointer.split("/").slice(1)) {
    const key = raw.replaceAll("~1", "/").replaceAll("~0", "~");
    if (/^\d+$/.test(key)) path += `[${key}]`;
    else path += path === "" ? key : `.${key}`;
  }
  return printable(path, PATH_CHARACTERS_MAX);
}

/** A value that a caller sent, as it may stand in a message. */
export function shown(value: unknown): string {
  if (typeof value === "string") return `'${printable(value, SHOWN_CHARACTERS_MAX)}'`;
  return printable(String(value), SHOWN_CHARACTERS_MAX);
}

/** Text without control characters or halves of characters, cut at a length. */
export function printable(text: string, charactersMax: number): string {
  const cut = text.length > charactersMax ? `${text.slice(0, charactersMax)}…` : text;
  return cut.toWellFormed().replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, "\uFFFD");
}

/** The JSON type of a value with its article. */
export function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "number") {
    if (!Number.isFinite(value)) return "a number out of range";
    return Number.isInteger(value) ? "an integer" : "a decimal";
  }
  if (typeof value === "object") return "an object";
  return `a ${typeof value}`;
}

/** "'a', 'b', and 'c'" */
export function joinedChoices(values: readonly unknown[]): string {
  const quoted = values.map((value) => `'${value}'`);
  if (quoted.length <= 1) return quoted.join("");
  if (quoted.length === 2) return quoted.join(" and ");
  return `${quoted.slice(0, -1).join(", ")}, and ${quoted.at(-1)}`;
}
