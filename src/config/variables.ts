import { hash } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { OperatorError } from "../errors.ts";
import { expectRegularFile, readTextFile, reasonOf } from "./text-file.ts";

const SECRET_BYTES_MAX = 64 * 1024;
/** Length from which a text is unlikely to be part of an error by chance. */
const MASKED_CHARACTERS_MIN = 4;
/** Errors show less than this of a long text. */
const SHOWN_CHARACTERS_MAX = 76;

/** Variables of the environment, also from the file that `NAME_FILE` names, or a credential of systemd. */
export class Variables {
  readonly #environment: NodeJS.ProcessEnv;
  readonly #files: Set<string>;
  readonly #contents = new Map<string, string>();
  readonly #references = new Set<string>();

  /** Adds the files that it reads, also those that do not exist, to `files`. */
  constructor(environment: NodeJS.ProcessEnv, files: Set<string> = new Set()) {
    this.#environment = environment;
    this.#files = files;
  }

  /** Returns the value of a variable; undefined if it is not set or empty. Throws OperatorError. */
  get(name: string): string | undefined {
    const file = this.fileOf(name);
    return file === undefined ? this.#environment[name] || undefined : this.#read(file.path, file.source);
  }

  /** Returns the file that contains a variable, and the name of the setting that names it. Throws OperatorError. */
  fileOf(name: string): { path: string; source: string } | undefined {
    const source = `${name}_FILE`;
    const path = this.#environment[source] || undefined;
    if (this.#environment[name]) {
      if (path !== undefined) throw new OperatorError(`${name} and ${source} are both set; remove one of them.`);
      return undefined;
    }
    if (path !== undefined) return { path, source };
    const directory = this.#environment.CREDENTIALS_DIRECTORY;
    const credential = directory ? join(directory, name) : undefined;
    return credential !== undefined && existsSync(credential) ? { path: credential, source: name } : undefined;
  }

  /** Returns the text for `${NAME}` or `${file:PATH}`; undefined if the variable is not set. Throws OperatorError. */
  textOf(reference: string, place: string): string | undefined {
    if (reference.startsWith("file:")) return this.#read(reference.slice("file:".length), place);
    const text = this.get(reference) ?? this.#environment[reference];
    if (text !== undefined) this.#references.add(text);
    return text;
  }

  /** All texts from files, and the variables that the configuration file refers to. */
  get hidden(): readonly string[] {
    const all = [...this.#contents.values(), ...this.#references];
    return all.filter(({ length }) => length >= MASKED_CHARACTERS_MIN);
  }

  /** Returns the SHA-256 of a file; undefined if it cannot be read. */
  hashOf(path: string): string | undefined {
    this.#files.add(path);
    try {
      expectRegularFile(path, path);
      return hash("sha256", readTextFile(path, path, SECRET_BYTES_MAX));
    } catch {
      return undefined;
    }
  }

  masked(error: unknown): unknown {
    if (!(error instanceof OperatorError)) return error;
    let { message } = error;
    for (const text of this.#contents.values()) {
      const shown = JSON.stringify(text).slice(1, -1).slice(0, SHOWN_CHARACTERS_MAX);
      if (shown.length >= MASKED_CHARACTERS_MIN) message = message.replaceAll(shown, "…");
    }
    return message === error.message ? error : new OperatorError(message);
  }

  #read(path: string, source: string): string {
    const known = this.#contents.get(path);
    if (known !== undefined) return known;
    this.#files.add(path);
    const name = `${source}: the file ${path}`;
    const text = readSecret(path, name).replace(/[\r\n]+$/, "");
    if (text === "") throw new OperatorError(`${name} is empty`);
    this.#contents.set(path, text);
    return text;
  }
}

function readSecret(path: string, name: string): string {
  try {
    expectRegularFile(path, name);
    return readTextFile(path, name, SECRET_BYTES_MAX);
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(`${name} cannot be read: ${reasonOf(error)}`, { cause: error });
  }
}
