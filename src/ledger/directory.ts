import { mkdir, open, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";

/** Makes a folder for its owner alone, so that it outlives a loss of power. */
export async function makeDirectory(path: string): Promise<void> {
  const whole = resolve(path);
  try {
    // Not `recursive`: Node tries without end where a file system such as /proc refuses folders with ENOENT.
    await mkdir(whole, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && (await stat(whole)).isDirectory()) return;
    if (code !== "ENOENT" || (await exists(dirname(whole)))) throw error;
    await makeDirectory(dirname(whole));
    return makeDirectory(whole);
  }
  await syncDirectory(dirname(whole));
}

/** A new file outlives a loss of power once the folder that names it is on the disk. */
export async function syncDirectory(path: string): Promise<void> {
  // Windows cannot open a folder, and writes its names at once.
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
