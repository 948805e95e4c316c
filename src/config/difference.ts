import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { Config } from "../config.ts";
import type { Path } from "./file.ts";
import { foundText, maskCredentials, SECRETS } from "./mistake.ts";
import { takesEffectAtReload } from "./schema.ts";

/** Changed settings: by the name of each, its old and its new value, or only that it has changed if it may be secret. */
export type Changes = Record<string, string>;

/** Difference between two configurations. */
export interface Difference {
  /** Changes that take effect at a reload. */
  atReload: Changes;
  /** Changes that take effect at the next start. */
  atStart: Changes;
}

/** A value in both configurations. */
interface Pair {
  before: unknown;
  after: unknown;
  /** Name for people: entries of a list have their ids. */
  name: string;
  path: Path;
}

/** Returns the difference between two configurations, without secrets. */
export function differenceOf(before: Config, after: Config): Difference {
  const found: Difference = { atReload: {}, atStart: {} };
  const hidden = [...before.hidden, ...after.hidden];
  const note = ({ path, name, ...pair }: Pair) => {
    const group = takesEffectAtReload(path) ? "atReload" : "atStart";
    found[group][name] = changeText({ path, name, ...pair }, hidden);
  };
  const { providerKeys: _keys, proxyVariables: _proxies, database: oldDatabase, ...old } = settingsOf(before);
  const { providerKeys, proxyVariables, database, ...current } = settingsOf(after);
  compare({ before: old, after: current, name: "", path: [] }, note);
  for (const kind of ["providerKeys", "proxyVariables"] as const) {
    for (const name of keysOf(before[kind], after[kind])) {
      const pair = { before: before[kind][name], after: after[kind][name] };
      if (pair.before !== pair.after) found.atReload[name] = secretText(pair);
    }
  }
  if (oldDatabase !== database) {
    const isSameDatabase = withoutPassword(oldDatabase) === withoutPassword(database);
    if (isSameDatabase) found.atReload.database = "password changed";
    else found.atStart.database = "changed";
  }
  return found;
}

/** Keys that are each node's own, by their paths. */
const OWN_KEYS: ReadonlySet<string> = new Set([
  "dataDir",
  "server.host",
  "server.port",
  "metrics.host",
  "metrics.port",
  "telemetry.resourceAttributes",
]);
/** A metric holds integers of this size exactly. */
const HASH_BYTES = 6;

/**
 * Returns a hash by which the configurations of nodes can be compared. Of a secret it contains only whether it is set, so
 * that none can be guessed from it, and nothing of the keys that are each node's own.
 */
export function configurationHash(config: Config): number {
  const comparable = (value: unknown, path: Path): unknown => {
    if (OWN_KEYS.has(path.join("."))) return undefined;
    const isSecret = path.some(
      (step) => SECRETS.has(step) || step === "providerKeys" || step === "credentialsFingerprint",
    );
    if (Array.isArray(value)) return value.map((entry, index) => comparable(entry, [...path, index]));
    if (isGroup(value)) {
      const keys = Object.keys(value).sort();
      return Object.fromEntries(keys.map((key) => [key, comparable(value[key], [...path, key])]));
    }
    if (typeof value !== "string") return value;
    return isSecret || config.hidden.some((text) => value.includes(text)) ? "set" : maskCredentials(value);
  };
  const text = JSON.stringify(comparable(settingsOf(config), []));
  return createHash("sha256").update(text).digest().readUIntBE(0, HASH_BYTES);
}

/** Returns a PostgreSQL address without its password. */
export function withoutPassword(database: string | null): string | null {
  const url = database === null ? null : URL.parse(database);
  if (url === null) return database;
  url.password = "";
  url.searchParams.delete("password");
  return url.href;
}

function settingsOf({ file: _file, hidden: _hidden, ...settings }: Config) {
  return settings;
}

/** Calls `note` for each value that differs. */
function compare(pair: Pair, note: (pair: Pair) => void): void {
  const { before, after, name, path } = pair;
  if (isDeepStrictEqual(before, after)) return;
  if (isGroup(before) && isGroup(after)) {
    for (const key of keysOf(before, after)) {
      const shown = key === "credentialsFingerprint" ? "credentialsFile" : key;
      const inner = name === "" ? shown : `${name}.${shown}`;
      compare({ before: before[key], after: after[key], name: inner, path: [...path, key] }, note);
    }
  } else if (isListOfGroups(before) && isListOfGroups(after)) {
    const [old, current] = [entriesOf(before), entriesOf(after)];
    for (const key of keysOf(old, current)) {
      compare({ before: old[key], after: current[key], name: `${name}[${key}]`, path: [...path, 0] }, note);
    }
    const isReordered = isDeepStrictEqual(Object.keys(old).sort(), Object.keys(current).sort());
    if (isReordered && !isDeepStrictEqual(Object.keys(old), Object.keys(current))) note(pair);
  } else note(pair);
}

function isGroup(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isListOfGroups(value: unknown): value is Record<string, unknown>[] {
  return Array.isArray(value) && value.every(isGroup);
}

/** Returns the entries of a list by their ids or, without ids, by their places. */
function entriesOf(list: readonly Record<string, unknown>[]): Record<string, unknown> {
  return Object.fromEntries(list.map((entry, index) => [typeof entry.id === "string" ? entry.id : index, entry]));
}

function keysOf(before: object, after: object): string[] {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])];
}

function changeText({ before, after, path }: Pair, hidden: readonly string[]): string {
  const isPart = (value: unknown) => value !== null && typeof value === "object";
  const isHidden = (value: unknown) => typeof value === "string" && hidden.some((text) => value.includes(text));
  if (isPart(before) && isPart(after)) return Array.isArray(before) ? "list changed" : "changed";
  if (path.includes("credentialsFingerprint")) return "content of the file changed";
  const isSecret = path.some((step) => SECRETS.has(step));
  if (isSecret || [before, after].some((value) => isPart(value) || isHidden(value))) {
    return secretText({ before, after });
  }
  return [before, after].map((value) => (value == null ? "none" : foundText(path, value))).join(" → ");
}

function secretText({ before, after }: Pick<Pair, "before" | "after">): string {
  if (before == null) return "added";
  return after == null ? "removed" : "changed";
}
