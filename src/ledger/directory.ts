import { mkdir, open, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";

/** Creates a directory that only its owner can read, durably. An existing directory is left as it is. */
export async function createDurableDirectory(path: string): Promise<void> {
  const whole = resolve(path);
  try {
    // Not `recursive`: Node never returns where a file system such as /proc refuses directories with ENOENT.
    await mkdir(whole, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && (await stat(whole)).isDirectory()) return;
    if (code !== "ENOENT" || (await exists(dirname(whole)))) throw error;
    await createDurableDirectory(dirname(whole));
    return createDurableDirectory(whole);
  }
  await syncDirectory(dirname(whole));
}

/** Writes a directory's entries to the disk, so that a new file in it survives a power failure. */
export async function syncDirectory(path: string): Promise<void> {
  // Windows cannot open directories, and writes their entries immediately.
  if (process.platform === "win32") return;
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
