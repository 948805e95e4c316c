import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

/** Tokens of output at the last checkpoint of each open hold of an organization, in the SQLite file of a running service. */
export function checkpointsIn(dataDir: string, organizationId: string): number[] {
  const database = new DatabaseSync(join(dataDir, "tollgate.db"), { readOnly: true, timeout: 60_000 });
  try {
    const text = "SELECT output_tokens FROM hold WHERE organization_id = ? AND state = 'open'";
    return database
      .prepare(text)
      .all(organizationId)
      .map(({ output_tokens }) => Number(output_tokens));
  } finally {
    database.close();
  }
}
