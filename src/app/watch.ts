import { readFile, stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

const POLL_MS = 250;
const FILE_BYTES_MAX = 4 * 1024 * 1024;

/**
 * Watches the contents of files by reading them, which also finds a change on a network file system, of a file that a
 * rename replaces, and of one behind a symbolic link that Kubernetes replaces. A change counts when two readings in a row
 * are equal, so that no file is half written. Does not keep the process alive. Calls `onChange`, which never rejects, after
 * each change and once at the start. Returns the function that stops watching, and resolves when a running check has ended.
 */
export function watchFiles(
  files: () => Iterable<string>,
  onChange: () => Promise<void>,
  pollMs: number = POLL_MS,
): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const run = async () => {
    let known = "";
    let last = "";
    while (!signal.aborted) {
      const found = await contentsOf(files());
      if (found === last && found !== known && !signal.aborted) {
        known = found;
        await onChange();
      }
      last = found;
      await sleep(pollMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  };
  const running = run();
  return () => {
    stopping.abort();
    return running;
  };
}

async function contentsOf(files: Iterable<string>): Promise<string> {
  return JSON.stringify(await Promise.all([...files].sort().map(async (file) => [file, await contentOf(file)])));
}

async function contentOf(file: string): Promise<string> {
  try {
    const found = await stat(file);
    // Reading a pipe would take what is in it, and wait for more.
    return found.isFile() && found.size <= FILE_BYTES_MAX ? await readFile(file, "latin1") : "unreadable";
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}
