import { resolve } from "node:path";
import { OperatorError } from "../errors.ts";
import { FORMATS } from "./formats.ts";
import { expectRegularFile, readTextFile, reasonOf } from "./text-file.ts";
import { Variables } from "./variables.ts";

/** Values of the command line, as text. */
export interface Flags {
  config?: string | undefined;
  dataDir?: string | undefined;
  host?: string | undefined;
  port?: string | undefined;
}

export interface ConfigSources {
  flags?: Flags;
  environment?: NodeJS.ProcessEnv;
  /** Throws as `readFileSync` does. */
  readFile?: (path: string) => string;
  /** Variables that hold keys of known providers. */
  providerKeyVariables?: readonly string[];
  /** `unread`: the secrets of providers stay as they are written in the file, for commands that call no provider. */
  secrets?: "read" | "unread";
  /** Receives the paths of all files that are read, also of those that do not exist. */
  files?: Set<string>;
  /** True for a service that runs. Its file must be one that can be read again, and must not be empty by a full disk. */
  isReload?: boolean;
}

export const DEFAULT_FILE = "tollgate.yaml";
export const DEFAULT_DATA_DIRECTORY = ".tollgate";
const FILE_BYTES_MAX = 4 * 1024 * 1024;

/** Returns the data directory that the environment names, or the default one. */
export function dataDirectoryOfEnvironment(environment: Record<string, string | undefined> = process.env): string {
  return environment.TOLLGATE_DATA_DIR || DEFAULT_DATA_DIRECTORY;
}

/** Returns a variable of the environment, also from the file that `NAME_FILE` names. Throws OperatorError. */
export function environmentVariable(name: string): string | undefined {
  return new Variables(process.env).get(name);
}

/** Reads the named configuration file, or the default one if it exists. Throws OperatorError. */
export function readConfigText(sources: ConfigSources): { name: string; text: string } | undefined {
  const { flags = {}, environment = process.env, readFile, files, isReload = false } = sources;
  const named = flags.config ?? (environment.TOLLGATE_CONFIG || undefined);
  const name = named ?? DEFAULT_FILE;
  const title = `${name}: the configuration file`;
  files?.add(name);
  try {
    if (isReload) expectRegularFile(name, title);
    const text = readFile?.(name) ?? readTextFile(name, title, FILE_BYTES_MAX);
    if (isReload && text.trim() === "") throw new OperatorError(`${title} is empty`);
    return { name, text };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    if ((error as NodeJS.ErrnoException).code === "ENOENT" && named === undefined) return undefined;
    throw new OperatorError(`${title} cannot be read: ${reasonOf(error)}`, { cause: error });
  }
}

/** Returns the absolute path of a data directory. Throws OperatorError if the working directory has been removed. */
export function absolute(path: string): string {
  try {
    return resolve(path);
  } catch (error) {
    throw new OperatorError("The working directory does not exist any more.", { cause: error });
  }
}

/** The settings of commands that only open the store. Without a database it is SQLite in the data directory. */
export type StoreSettings = Awaited<ReturnType<typeof loadStoreSettings>>;

const SETTINGS = [
  { key: "dataDir", variable: "TOLLGATE_DATA_DIR", flag: "--data-dir", format: "path" },
  { key: "database", variable: "DATABASE_URL", flag: undefined, format: "postgres-url" },
] as const;

/** Reads only where the store is, by the rules of `loadConfig`; without a file, neither YAML nor the schema is loaded. */
export async function loadStoreSettings(sources: ConfigSources = {}) {
  const { flags = {}, environment = process.env } = sources;
  const variables = new Variables(environment);
  try {
    const read = readConfigText(sources);
    const only = SETTINGS.map(({ key }) => key);
    const file = read && (await import("./file.ts")).parseFile(read.name, read.text, { variables, only });
    const found: Record<string, string | undefined> = {};
    for (const { key, variable, flag, format } of SETTINGS) {
      const given: [string, unknown][] = [
        [`${file?.place([key])}: ${key}`, file?.values[key]],
        [variable, variables.get(variable)],
        [flag ?? "", flag && flags.dataDir],
      ];
      for (const [source, value] of given) {
        if (value === undefined) continue;
        const isFine = typeof value === "string" && value !== "" && FORMATS[format]?.test(value) === true;
        // Throws the error of the schema.
        if (!isFine) (await import("./mistake.ts")).checkValue(source, [key], value);
        found[key] = String(value);
      }
    }
    return { dataDir: absolute(found.dataDir ?? DEFAULT_DATA_DIRECTORY), database: found.database ?? null };
  } catch (error) {
    throw variables.masked(error);
  }
}
