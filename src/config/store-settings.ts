import type { ConfigSources } from "../config.ts";
import { absolute, DEFAULT_DATA_DIRECTORY, readConfigText } from "./read-file.ts";

/** The settings of commands that only open the store. */
export interface StoreSettings {
  dataDir: string;
  /** Null: SQLite in `dataDir`. */
  database: string | null;
}

const SETTINGS = [
  { key: "dataDir", variable: "TOLLGATE_DATA_DIR", flag: "--data-dir", isFine: isPath },
  { key: "database", variable: "DATABASE_URL", flag: undefined, isFine: isDatabase },
] as const;

/**
 * Reads only the location of the store, by the rules of `loadConfig`, so that a missing provider key does not stop a
 * command that calls no provider. YAML and the schema are loaded only when they are needed. Rejects with OperatorError.
 */
export async function loadStoreSettings(sources: ConfigSources = {}): Promise<StoreSettings> {
  const { flags = {}, environment = process.env, readFile } = sources;
  const set = (name: string) => environment[name] || undefined;
  const read = readConfigText(flags.config ?? set("TOLLGATE_CONFIG"), readFile);
  const only = SETTINGS.map(({ key }) => key);
  const file = read && (await import("./file.ts")).parseFile(read.name, read.text, { environment, only });
  const found: Record<string, string | undefined> = {};
  for (const { key, variable, flag, isFine } of SETTINGS) {
    const given: [string, unknown][] = [
      [`${file?.place([key])}: ${key}`, file?.values[key]],
      [variable, set(variable)],
      [flag ?? "", flag && flags.dataDir],
    ];
    for (const [source, value] of given) {
      if (value === undefined) continue;
      if (!isFine(value)) await refuse(source, key, value);
      found[key] = String(value);
    }
  }
  return { dataDir: absolute(found.dataDir ?? DEFAULT_DATA_DIRECTORY), database: found.database ?? null };
}

/** Rejects with the error of the schema for a value. */
async function refuse(source: string, key: string, value: unknown): Promise<void> {
  const { checkValue } = await import("../config.ts");
  checkValue(source, [key], value);
}

function isPath(value: unknown): boolean {
  return typeof value === "string" && value !== "" && !value.includes("\0");
}

function isDatabase(value: unknown): boolean {
  return (
    typeof value === "string" &&
    /^postgres(ql)?:\/\//i.test(value) &&
    URL.parse(value)?.pathname.includes("@") === false
  );
}
