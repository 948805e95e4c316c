/** Formats fields and values for public messages. Values of a request are shortened and put on one line. */

const SHOWN_CHARACTERS_MAX = 64;
const PATH_CHARACTERS_MAX = 128;

/** Converts a JSON pointer to a path: "/messages/0/role" to `messages[0].role`. */
export function pathOf(pointer: string): string {
  let path = "";
  for (const raw of pointer.split("/").slice(1)) {
    const key = raw.replaceAll("~1", "/").replaceAll("~0", "~");
    if (/^\d+$/.test(key)) path += `[${key}]`;
    else path += path === "" ? key : `.${key}`;
  }
  return printable(path, PATH_CHARACTERS_MAX);
}

/** Formats a value of a request for a message. */
export function shown(value: unknown): string {
  if (typeof value === "string") return `'${printable(value, SHOWN_CHARACTERS_MAX)}'`;
  return printable(String(value), SHOWN_CHARACTERS_MAX);
}

/** A character that is seen: none of space, and none that fonts leave out. */
const SEEN = "[^\\s\\p{Default_Ignorable_Code_Point}\\u2800]";
/** Pattern of names and notes that other people read. Controls of the direction could turn round what they read. */
export const LINE = `^(?=.*${SEEN})[^\\p{Cc}\\p{Zl}\\p{Zp}\\p{Bidi_Control}]{1,200}$`;
/** Pattern of a text of several lines. */
export const LINES = `^(?=[\\s\\S]*${SEEN})[^\\p{Bidi_Control}]+$`;
export const LINE_WORDS =
  "1 to 200 characters on one line, some of them visible, and no controls of the text direction";

/** Tells whether a text has a character that is seen. */
export function isSeen(text: string): boolean {
  return new RegExp(SEEN, "u").test(text);
}

/** Replaces control characters, those of the text direction and lone surrogates, and shortens a text to a length. */
export function printable(text: string, charactersMax: number): string {
  const cut = text.length > charactersMax ? `${text.slice(0, charactersMax)}…` : text;
  return cut.toWellFormed().replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "\uFFFD");
}

/** Replaces the characters of a text of several lines that `printable` replaces, so that no terminal obeys them. */
export function printableLines(text: string): string {
  return text.replace(/(?!\r?(?:\n|$)|\t)[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "\uFFFD");
}

/** Tells whether both stores can keep a text as it is: UTF-8 has no half of a surrogate pair, PostgreSQL's text no NUL. */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes("\0");
}

/** Returns the JSON type of a value with its article. */
export function typeOf(value: unknown): string {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return "an array";
  if (typeof value !== "number") return withArticle(value === null ? "null" : typeof value);
  if (!Number.isFinite(value)) return "a number out of range";
  return Number.isInteger(value) ? "an integer" : "a decimal";
}

/** Puts the article before the name of a JSON type. */
export function withArticle(type: string): string {
  if (type === "null") return type;
  return `${/^[aeiou]/.test(type) ? "an" : "a"} ${type}`;
}

const LIST = new Intl.ListFormat("en");

/** Joins values as in "'a', 'b', and 'c'". */
export function joinedChoices(values: readonly unknown[]): string {
  return LIST.format(values.map((value) => `'${value}'`));
}

const FIELDS_LISTED_MAX = 16;
const FIELD_CHARACTERS_MAX = 64;

/** Collects the names of unknown fields for a header: a limited number, short, with characters of a header. */
export class UnknownFields {
  readonly #names = new Set<string>();
  readonly #refused: RegExp | undefined;
  #isMore = false;
  refused: string | undefined;

  /** `refused` matches the names of fields that must not be ignored. */
  constructor(refused?: RegExp) {
    this.#refused = refused;
  }

  /** Adds a field; `place` is the path of its object, with a dot at its end. */
  add(place: string, field: string): void {
    const name = `${place}${field.slice(0, FIELD_CHARACTERS_MAX).replaceAll(/[^\w.$:@/[\]-]/g, "_")}`;
    if (this.#refused?.test(name)) this.refused ??= name;
    if (this.#names.size < FIELDS_LISTED_MAX) this.#names.add(name);
    else if (!this.#names.has(name)) this.#isMore = true;
  }

  names(): string[] {
    return this.#isMore ? [...this.#names, "..."] : [...this.#names];
  }
}
