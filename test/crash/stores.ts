import { spawn } from "node:child_process";
import { once } from "node:events";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

/** Takes SQLite's write lock from another process's side; gives how to let it go. */
export function lockFile(path: string): () => void {
  const database = new DatabaseSync(path, { timeout: 30_000 });
  database.exec("BEGIN IMMEDIATE");
  return () => database.close();
}

/** Locks the balances of organizations from a session of its own; gives how to let them go. */
export async function lockBalances(url: string, organizationIds: string[]): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query("BEGIN");
  await client.query("SELECT FROM balance WHERE organization_id = ANY ($1) ORDER BY organization_id FOR UPDATE", [
    organizationIds,
  ]);
  return () => client.end();
}

/** SQLite polls for a lock at most every 100 ms. */
const OPEN_MS = 150;

/** Keeps SQLite's write lock most of the time, `eachMs` at once, until it is told to stop. */
export function slowFile(path: string, eachMs: number): () => Promise<void> {
  let isOver = false;
  const work = async () => {
    while (!isOver) {
      const unlock = lockFile(path);
      await sleep(eachMs);
      unlock();
      await sleep(OPEN_MS);
    }
  };
  const working = work();
  return () => {
    isOver = true;
    return working;
  };
}

/** A file system of its own, of a fixed size, which only programs that `launcher` starts see. */
export interface SmallDisk {
  /** A command that runs another one where the file system is mounted. */
  launcher: string[];
  /** Takes every byte that is left. */
  fill(): Promise<void>;
  /** Gives back what `fill` took. */
  free(): Promise<void>;
  remove(): Promise<void>;
}

const KEEPER = `mount -t tmpfs -o "size=$2" tmpfs "$1" && echo mounted && cat`;

/**
 * Mounts a file system of `megabytes` at a directory, in a name space of its own, so that neither rights nor a trace are
 * needed. Resolves with undefined where the machine does not allow that.
 */
export async function mountSmallDisk(directory: string, megabytes: number): Promise<SmallDisk | undefined> {
  const words = ["--user", "--map-root-user", "--mount", "sh", "-c", KEEPER, "sh", directory, `${megabytes}m`];
  const keeper = spawn("unshare", words, { stdio: ["pipe", "pipe", "ignore"] });
  const exited = once(keeper, "exit").catch(() => undefined);
  const first = await Promise.race([once(keeper.stdout, "data"), exited]);
  if (first === undefined || String(first[0]).trim() !== "mounted") return undefined;
  // The directory as this process reaches it.
  const filler = join(`/proc/${keeper.pid}/root${directory}`, "filler");
  const enter = ["--user", "--mount", "--preserve-credentials", "--target", String(keeper.pid)];
  return {
    launcher: ["nsenter", ...enter, "--"],
    async fill() {
      for (const chunkBytes of [1 << 16, 1 << 12]) {
        await writeUntilFull(filler, chunkBytes);
      }
    },
    free: () => rm(filler, { force: true }),
    async remove() {
      keeper.stdin.end();
      await exited;
    },
  };
}

async function writeUntilFull(path: string, chunkBytes: number): Promise<void> {
  try {
    for (;;) await writeFile(path, Buffer.alloc(chunkBytes), { flag: "a" });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  }
}
