import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The commit that a program was made from. */
export interface Commit {
  /** First seven digits of its hash. */
  hash: string;
  committedAtMs: number;
}

/** Identity of this program. */
export interface ProgramVersion {
  /** A semantic version with its commit, such as `0.1.0+a870786`; without the commit if it is not known. */
  name: string;
  /** Milliseconds since 1970; null if the commit is not known. */
  committedAtMs: number | null;
}

/** The build of the package writes this file; a clone has none. */
const COMMIT_FILE = new URL("./commit.json", import.meta.url);
const ROOT = new URL("../", import.meta.url);

let known: ProgramVersion | undefined;

/** Returns the version of this program: that of its package, with the commit of the build or of the clone. */
export function programVersion(): ProgramVersion {
  known ??= readVersion();
  return known;
}

function readVersion(): ProgramVersion {
  const { version } = JSON.parse(readFileSync(new URL("package.json", ROOT), "utf8")) as { version: string };
  const commit = builtCommit() ?? cloneCommit(ROOT);
  if (commit === undefined) return { name: version, committedAtMs: null };
  return { name: `${version}+${commit.hash}`, committedAtMs: commit.committedAtMs };
}

function builtCommit(): Commit | undefined {
  try {
    return JSON.parse(readFileSync(COMMIT_FILE, "utf8"));
  } catch {
    return undefined;
  }
}

/** Returns the commit of a clone; undefined if the folder is none, or git is missing. A clone around the folder does not count. */
export function cloneCommit(folder: URL): Commit | undefined {
  const directory = fileURLToPath(new URL(".git", folder));
  const words = ["log", "-1", "--no-show-signature", "--abbrev=7", "--format=%h %ct"];
  try {
    const text = execFileSync("git", ["--git-dir", directory, ...words], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    });
    return parseCommit(text);
  } catch {
    return undefined;
  }
}

/** Parses a hash and the seconds of its time, as `git log --format='%h %ct'` prints them; undefined for anything else. */
export function parseCommit(text: string): Commit | undefined {
  const [, hash, seconds] = /^([0-9a-f]{7,}) (\d+)\s*$/.exec(text) ?? [];
  return hash === undefined ? undefined : { hash: hash.slice(0, 7), committedAtMs: Number(seconds) * 1000 };
}
