import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { promisify } from "node:util";

/** A file system of its own, of a fixed size, which only programs that `launcher` starts see. */
export interface SmallDisk {
  /** A command that runs another one where the file system is mounted, as root of that name space alone. */
  launcher: string[];
  /** The directory as this process reaches it. */
  outside: string;
  /** Takes every byte that is left. */
  fill(): Promise<void>;
  /** Gives back what `fill` took. */
  free(): Promise<void>;
  remove(): Promise<void>;
}

/** This machine lets no program mount a file system of its own. */
export class NoSmallDiskError extends Error {
  constructor() {
    super("this machine lets no program mount a file system of its own");
  }
}

const MOUNT_SCRIPT = `mount -t tmpfs -o "size=$2" tmpfs "$1" && echo mounted && cat`;
/** It ends with the first byte that finds no room, which is what it is for. */
const FILL = `cat /dev/zero > "$1" 2> /dev/null || true`;

/**
 * Mounts a file system of `megabytes` at a directory, in a name space of its own, so that neither rights nor a trace are
 * needed: the directory belongs to `user`, who is this process's own by default. Rejects with NoSmallDiskError.
 */
export async function mountSmallDisk(
  directory: string,
  megabytes: number,
  user?: { uid: number; gid: number },
): Promise<SmallDisk> {
  const words = ["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT_SCRIPT, "sh", directory, `${megabytes}m`];
  const mount = spawn("unshare", words, { ...user, stdio: ["pipe", "pipe", "ignore"] });
  const exited = once(mount, "exit").catch(() => undefined);
  const first = await Promise.race([once(mount.stdout, "data"), exited]);
  if (first === undefined || String(first[0]).trim() !== "mounted") throw new NoSmallDiskError();
  const enter = ["--user", "--mount", "--preserve-credentials", "--target", String(mount.pid)];
  const filler = `${directory}/filler`;
  const inside = (...command: string[]) => promisify(execFile)("nsenter", [...enter, "--", ...command], { ...user });
  return {
    launcher: ["nsenter", ...enter, "--"],
    outside: `/proc/${mount.pid}/root${directory}`,
    fill: () => inside("sh", "-c", FILL, "sh", filler).then(() => {}),
    free: () => inside("rm", "-f", filler).then(() => {}),
    async remove() {
      mount.stdin.end();
      await exited;
    },
  };
}
