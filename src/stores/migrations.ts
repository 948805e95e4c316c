import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";

export interface Migration {
  version: number;
  name: string;
  sql: string;
  checksum: string;
}

const FILE_NAME = /^(\d{4})_\w+\.sql$/;

/** Every migration in a directory, in order. */
export function readMigrations(directory: URL): Migration[] {
  const names = readdirSync(directory).filter((name) => FILE_NAME.test(name));
  return names.sort().map((name) => {
    const sql = readFileSync(new URL(name, directory), "utf8");
    return { version: Number(name.slice(0, 4)), name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
  });
}
