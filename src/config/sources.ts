import { closeSync, openSync, readSync } from "node:fs";
import { resolve } from "node:path";
import { OperatorError } from "../errors.ts";

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
}

export const DEFAULT_FILE = "tollgate.yaml";
export const DEFAULT_DATA_DIRECTORY = ".tollgate";
const FILE_BYTES_MAX = 4 * 1024 * 1024;

const REASONS: Record<string, string> = {
  ENOENT: "there is no such file",
  EACCES: "permission denied",
  EISDIR: "it is a directory",
  ENOTDIR: "a part of its path is not a directory",
  ELOOP: "its symbolic links lead in a circle",
  ENAMETOOLONG: "its name is too long",
};

/** Returns the data directory that the environment names, or the default one. */
export function dataDirectoryOfEnvironment(environment: Record<string, string | undefined> = process.env): string {
  return environment.TOLLGATE_DATA_DIR || DEFAULT_DATA_DIRECTORY;
}

/**
 * Reads the named configuration file, or the default one if it exists. Throws OperatorError if it cannot be read, is too
 * large or is not text.
 */
export function readConfigText(
  named: string | undefined,
  readFile: (path: string) => string = readText,
): { name: string; text: string } | undefined {
  const name = named ?? DEFAULT_FILE;
  try {
    return { name, text: readFile(name) };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (code === "ENOENT" && named === undefined) return undefined;
    const reason = REASONS[code] ?? (code || String(error));
    throw new OperatorError(`${name}: the configuration file cannot be read: ${reason}`, { cause: error });
  }
}

/** Reads a bounded number of bytes, since the name may be that of a pipe or a device without end. */
function readText(path: string): string {
  const file = openSync(path, "r");
  try {
    const pieces: Buffer[] = [];
    let length = 0;
    for (;;) {
      const piece = Buffer.alloc(64 * 1024);
      const read = readSync(file, piece);
      if (read === 0) break;
      length += read;
      if (length > FILE_BYTES_MAX) {
        throw new OperatorError(`${path}: the configuration file is larger than ${FILE_BYTES_MAX} bytes`);
      }
      pieces.push(piece.subarray(0, read));
    }
    return textOf(path, Buffer.concat(pieces));
  } finally {
    closeSync(file);
  }
}

function textOf(path: string, bytes: Buffer): string {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return text;
  } catch {
    // Not UTF-8; refused below.
  }
  throw new OperatorError(`${path}: the configuration file is not text in UTF-8`);
}

/** Returns the absolute path of a data directory. Throws OperatorError if the working directory has been removed. */
export function absolute(path: string): string {
  try {
    return resolve(path);
  } catch (error) {
    throw new OperatorError("The working directory does not exist any more.", { cause: error });
  }
}

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
  const { checkValue } = await import("./mistake.ts");
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
