import { Set as setFormat } from "typebox/format";
import { Errors } from "typebox/schema";
import { Settings } from "typebox/system";
import { OperatorError } from "../errors.ts";
import { keyText, type Path } from "./file.ts";
import { FORMATS } from "./formats.ts";
import { allowedWords, configNode, type SchemaNode, schemaAt } from "./schema.ts";

for (const [name, { test }] of Object.entries(FORMATS)) setFormat(name, test);
// All of them, so that they can be mended at once.
Settings.Set({ maxErrors: Number.POSITIVE_INFINITY });

/** Returns the mistakes in the value at a path, at most one for each setting. Texts of `unread` keys can have any format. */
export function mistakesIn(value: unknown, base: Path = [], unread: ReadonlySet<unknown> = new Set()) {
  const isUnread = (pointer: string) => pointer.split("/").some((step) => unread.has(step));
  const mistake = (path: Path, found: string) => ({ path, text: `${found}, but must be ${wordsAt(path)}.` });
  const found = Errors(schemaAt(base) ?? {}, value)[1].flatMap((error) => {
    const { instancePath, schemaPath } = error;
    const steps = instancePath.split("/").slice(1).map(pointerStep);
    const path = [...base, ...steps];
    // Invalid and unknown keys are reported once more, for their group.
    if (schemaPath.endsWith("/propertyNames") || error.keyword === "boolean") return [];
    if (error.keyword === "format" && isUnread(instancePath)) return [];
    switch (error.keyword) {
      case "propertyNames":
        return mistake(path, `has the key ${JSON.stringify(error.params.propertyNames[0])}`);
      case "additionalProperties":
        return error.params.additionalProperties.map((key) => unknownKey(path, key));
      case "required":
        return error.params.requiredProperties.map((key) => mistake([...path, key], "is missing"));
      case "uniqueItems":
        return { path, text: "is a list with an entry twice, but must be a list of different entries." };
    }
    const present = steps.reduce((node: unknown, step) => (node as Record<string, unknown> | undefined)?.[step], value);
    return mistake(path, `is ${foundText(path, present)}`);
  });
  return [...Map.groupBy(found, ({ path }) => keyText(path)).values()].flatMap(([first]) => first ?? []);
}

/** Checks a value against the part of the schema that it sets. Throws OperatorError, which begins with its source. */
export function checkValue(source: string, path: Path, value: unknown): void {
  const [mistake] = mistakesIn(value, path);
  if (mistake !== undefined) throw new OperatorError(`${source} ${mistake.text}`);
}

/** Keys of settings that hold secrets. */
export const SECRETS: ReadonlySet<string | number> = new Set([
  "apiKey",
  "clientSecret",
  "accessKeyId",
  "secretAccessKey",
  "sessionToken",
  "headers",
  "token",
  "smtp",
  "secretKey",
  "webhookSecret",
]);

/** Returns a value as an error shows it: short, on one line, and without anything that may be secret. */
export function foundText(path: readonly (string | number)[], value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? "an empty list" : "a list";
  if (value === null) return "nothing";
  if (typeof value === "object") return "keys and values";
  if (path.includes("database") || path[0] === "redis")
    return /^[a-z][a-z0-9+.-]*:\/\//i.exec(String(value))?.[0].concat("…") ?? "other text";
  if (path.some((step) => SECRETS.has(step))) return `a ${typeof value}`.replace("a string", "other text");
  const text = JSON.stringify(typeof value === "string" ? maskCredentials(value) : value);
  return text.length > 80 ? `${text.slice(0, 77)}…"` : text;
}

/** Masks the secret parts of an address: the user name and password, also in a malformed one, and the query. */
export function maskCredentials(text: string): string {
  if (!/:\/\/|^[^/]*:[^/]*@/.test(text)) return text;
  return text.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, "$1…@").replace(/\?.*$/s, "?…");
}

function wordsAt(path: Path): string {
  const schema = schemaAt(path) ?? {};
  const words = allowedWords(schema);
  return schema.enum !== undefined && schema.allowed === undefined ? `one of: ${words}` : words;
}

function pointerStep(step: string): string | number {
  return /^\d+$/.test(step) ? Number(step) : step.replaceAll("~1", "/").replaceAll("~0", "~");
}

function unknownKey(path: (string | number)[], key: string) {
  const siblings = Object.keys(schemaAt(path)?.properties ?? {});
  const suggestion = nearest(key, siblings);
  const elsewhere = suggestion === undefined ? sameKeyElsewhere(key, configNode, []) : undefined;
  const meant = suggestion === undefined ? elsewhere : keyText([...path, suggestion]);
  const hint = meant === undefined ? `Known settings: ${siblings.join(", ")}.` : `Did you mean ${meant}?`;
  return { path: [...path, key], text: `is not a known setting. ${hint}` };
}

function sameKeyElsewhere(key: string, schema: SchemaNode, path: string[]): string | undefined {
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    if (name === key) return keyText([...path, name]);
    const found = sameKeyElsewhere(key, member, [...path, name]);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Returns the candidate that `word` may be a typing mistake for: at most two letters differ, and at most half of them. */
function nearest(word: string, candidates: readonly string[]): string | undefined {
  const plain = (text: string) => text.toLowerCase().replaceAll(/[-_]/g, "");
  const distances = candidates.map((candidate) => ({ candidate, away: editDistance(plain(word), plain(candidate)) }));
  const best = distances.sort((a, b) => a.away - b.away)[0];
  return best !== undefined && best.away <= 2 && best.away * 2 <= word.length ? best.candidate : undefined;
}

/** Counts the letters to insert, remove or replace (Levenshtein). */
function editDistance(from: string, to: string): number {
  let last = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [line, letter] of [...from].entries()) {
    const row = [line + 1];
    for (const [column, other] of [...to].entries()) {
      const replaced = (last[column] ?? 0) + (letter === other ? 0 : 1);
      row.push(Math.min(replaced, (last[column + 1] ?? 0) + 1, (row[column] ?? 0) + 1));
    }
    last = row;
  }
  return last.at(-1) ?? 0;
}
