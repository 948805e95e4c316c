import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { decodeLines } from "../../src/credits/charge-lines.ts";

/** Tokens of output at the last checkpoint of each open hold of an organization, in the SQLite file of a running service. */
export function checkpointsIn(dataDir: string, organizationId: string): number[] {
  const database = new DatabaseSync(join(dataDir, "tollgate.db"), { readOnly: true, timeout: 60_000 });
  try {
    const text = "SELECT details FROM hold WHERE organization_id = ?";
    return database
      .prepare(text)
      .all(organizationId)
      .map(({ details }) => decodeLines(JSON.parse(String(details))[5]).tokens.output);
  } finally {
    database.close();
  }
}
