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
 * Reads where the store is, by the rules of `loadConfig`, and nothing else of the configuration: a provider's key that is
 * not set stops no command that calls no provider. Neither YAML nor the schema is loaded unless they are needed. Rejects
 * with OperatorError.
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

/** Rejects with what the schema says of a value. */
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
