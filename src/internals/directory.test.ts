import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { createDirectory } from "./directory.ts";

const root = mkdtempSync(join(tmpdir(), "tollgate-directory-"));
afterAll(() => rmSync(root, { recursive: true }));

test("a directory is created with those above it, for its owner only, and an existing one is left as it is", () => {
  const path = join(root, "a", "b");
  createDirectory(path);
  createDirectory(path);
  const modes = [path, join(root, "a")].map((created) => statSync(created).mode & 0o777);
  expect(modes).toEqual(process.platform === "win32" ? modes : [0o700, 0o700]);
});

test("a directory is refused below a file, and where a file has its name", () => {
  const file = join(root, "file");
  writeFileSync(file, "");
  expect(() => createDirectory(join(file, "a"))).toThrow("ENOTDIR");
  expect(() => createDirectory(file)).toThrow("EEXIST");
});

test.skipIf(process.platform !== "linux")("a directory is refused by a file system without directories", () => {
  expect(() => createDirectory("/proc/tollgate/data")).toThrow("ENOENT");
});
