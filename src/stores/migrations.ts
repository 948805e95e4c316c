import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";

export interface Migration {
  version: number;
  name: string;
  sql: string;
  checksum: string;
}

const FILE_NAME = /^(\d{4})_\w+\.sql$/;

/** Returns why a command that may not create or migrate a store cannot open it; undefined if it can. */
export function schemaRefusal(place: string, found: number | undefined, migrations: Migration[]): string | undefined {
  const known = migrations.at(-1)?.version ?? 0;
  if (found === undefined) return `There is no store in ${place}. ${NO_STORE}`;
  if (found > known)
    return `${place} was written by a newer Tollgate: its schema is ${found}, this one knows up to ${known}.`;
  if (found === known) return undefined;
  return `${place} was written by an older Tollgate: its schema is ${found}, this one needs ${known}. The next start of the service brings it up to date.`;
}

const NO_STORE =
  "To name another place, use --data-dir or --config; tollgate serve and tollgate org create make a store.";

/** Returns the migrations in a directory, in order. */
export function readMigrations(directory: URL): Migration[] {
  const names = readdirSync(directory).filter((name) => FILE_NAME.test(name));
  return names.sort().map((name) => {
    const sql = readFileSync(new URL(name, directory), "utf8");
    return { version: Number(name.slice(0, 4)), name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
  });
}
