import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { isObject } from "../api/json.ts";
import type { Config } from "../config.ts";
import type { Path } from "./file.ts";
import { maskCredentials, SECRETS } from "./mistake.ts";
import { schemaAt, takesEffectAtReload } from "./schema.ts";

/** Settings that differ, by name. Their values are not shown, because any of them may be secret. */
export type Changes = Record<string, "added" | "changed" | "removed">;

interface Pair {
  before: unknown;
  after: unknown;
  /** Name for people: entries of a list have their ids. */
  name: string;
  path: Path;
}

/** Returns the difference between two configurations. Of the database, only the password takes effect at a reload. */
export function differenceOf(before: Config, after: Config) {
  const found: Record<"atReload" | "atStart", Changes> = { atReload: {}, atStart: {} };
  const [old, current] = [settingsOf(before), settingsOf(after)];
  for (const { before, after, name, path } of differing({ before: old, after: current, name: "", path: [] })) {
    const isReloaded = isVariable(path) || takesEffectAtReload(path);
    found[isReloaded ? "atReload" : "atStart"][name] = before == null ? "added" : after == null ? "removed" : "changed";
  }
  if (before.database !== after.database && old.database === current.database) found.atReload.database = "changed";
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

/** Returns a hash to compare the configurations of nodes by, without their own keys; of a secret only whether it is set. */
export function configurationHash(config: Config): number {
  const comparable = (value: unknown, path: Path): unknown => {
    if (OWN_KEYS.has(path.join("."))) return undefined;
    const isSecret = isVariable(path) || path.some((step) => SECRETS.has(step) || step === "credentialsFileHash");
    if (Array.isArray(value)) return value.map((entry, index) => comparable(entry, [...path, index]));
    if (isObject(value)) {
      const keys = Object.keys(value).sort();
      return Object.fromEntries(keys.map((key) => [key, comparable(value[key], [...path, key])]));
    }
    if (typeof value !== "string") return value;
    return isSecret || config.hidden.some((text) => value.includes(text)) ? "set" : maskCredentials(value);
  };
  const text = JSON.stringify(comparable(settingsOf(config), []));
  return hash("sha256", text, "buffer").readUIntBE(0, HASH_BYTES);
}

/** Returns a PostgreSQL address without its password. */
export function withoutPassword(database: string | null): string | null {
  const url = database === null ? null : URL.parse(database);
  if (url === null) return database;
  url.password = "";
  url.searchParams.delete("password");
  return url.href;
}

function settingsOf({ file: _file, hidden: _hidden, providerKeys, proxyVariables, database, ...settings }: Config) {
  return { ...settings, ...providerKeys, ...proxyVariables, database: withoutPassword(database) };
}

function isVariable([name = ""]: Path): boolean {
  return schemaAt([name]) === undefined;
}

function* differing(pair: Pair): Generator<Pair> {
  const { before, after, name, path } = pair;
  if (isDeepStrictEqual(before, after)) return;
  const [old, current] = [membersOf(before), membersOf(after)];
  if (old === undefined || current === undefined) {
    yield pair;
    return;
  }
  const keys = Object.keys({ ...old, ...current });
  for (const key of keys) {
    const shown = key === "credentialsFileHash" ? "credentialsFile" : key;
    const inner = name === "" || key.startsWith("[") ? `${name}${shown}` : `${name}.${shown}`;
    const step = key.startsWith("[") ? 0 : key;
    yield* differing({ before: old[key], after: current[key], name: inner, path: [...path, step] });
  }
  if (!Array.isArray(before) || !Array.isArray(after)) return;
  const isSameSet = keys.length === before.length && keys.length === after.length;
  if (isSameSet && !isDeepStrictEqual(keys, Object.keys(current))) yield pair;
}

/** Returns the keys of a group, or the entries of a list of groups by their ids or places; undefined for other values. */
function membersOf(value: unknown): Record<string, unknown> | undefined {
  if (isObject(value)) return value;
  if (!Array.isArray(value) || !value.every(isObject)) return undefined;
  return Object.fromEntries(value.map((entry, index) => [`[${entry.id ?? index}]`, entry]));
}
