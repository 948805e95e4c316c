import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { ListedStatement } from "../../src/api/admin/credits.ts";
import { DAY_MS, monthStart } from "../../src/api/time.ts";
import { operator } from "./admin.ts";
import type { RunningService } from "./service.ts";

/**
 * Moves the grants and charges of an organization on SQLite to the second day of the month before the last, and makes the statements of the
 * months that are over. Returns them, the newest first.
 */
export async function makeStatements(service: RunningService, organizationId: string): Promise<ListedStatement[]> {
  const beside = new DatabaseSync(join(service.dataDir, "tollgate.db"), { timeout: 60_000 });
  const atMs = monthStart(Date.now(), -2) + DAY_MS;
  beside.prepare("update credit_grant set created_at = ? where organization_id = ?").run(atMs, organizationId);
  beside.prepare("update request set ended_at = ?, is_late = 1 where organization_id = ?").run(atMs, organizationId);
  beside.close();
  await service.tollgate("retention", "run");
  const path = `/statements?organization_id=${organizationId}`;
  return (await operator(service).call<{ data: ListedStatement[] }>("GET", path)).body.data;
}
