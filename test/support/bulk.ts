import { randomBytes } from "node:crypto";
import { auditRow, COMMAND_ACTOR } from "../../src/admin/audit.ts";
import type { AuditOfRows } from "../../src/credits/audit.ts";
import { idAt } from "../../src/credits/request-id.ts";
import { AUDIT_ENTRY, withChecksum } from "../../src/stores/admin-schema.ts";
import { partitionOf } from "../../src/stores/postgres/partitions.ts";

/** SQL that fills the books of one organization with charged requests, faster than any service could. */
export interface Bulk {
  organizationId: string;
  /** The grant that all is drawn from. */
  grantId: string;
  count: number;
  /** Time of the first. */
  fromMs: number;
  /** Between two; a second unless stated. */
  stepMs?: number;
  /** For an organization whose changes have audit records: its charged tokens must exist. */
  makesToken?: boolean;
  /** SQL of other columns, or of others in their place; `n` is the number of the request. */
  columns?: Record<string, string>;
}

export const BULK_TOKEN = "tok_bulk";

/** Returns the charge of a request by its number. */
export const bulkCost = (number: number) => number % 997;

export function bulkStatements(kind: "sqlite" | "postgres", bulk: Bulk): string[] {
  const { organizationId, grantId, count, fromMs, stepMs = 1_000 } = bulk;
  const total = Array.from({ length: count }, (_, number) => bulkCost(number)).reduce((sum, cost) => sum + cost, 0);
  const series =
    kind === "sqlite"
      ? `WITH RECURSIVE series (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM series WHERE n < ${count - 1})`
      : `WITH series (n) AS (SELECT generate_series(0, ${count - 1})::bigint)`;
  const at = `${fromMs} + ${stepMs} * n`;
  const hex = (value: string, digits: number) =>
    kind === "sqlite" ? `printf('%0${digits}x', ${value})` : `lpad(to_hex(${value}), ${digits}, '0')`;
  const id = `${hex(`(${at}) / 65536`, 8)} || '-' || ${hex(`(${at}) % 65536`, 4)} || '-7000-8000-' || ${hex("n", 12)}`;
  const cost = "n % 997";
  const draws = `CASE ${cost} WHEN 0 THEN '[]' ELSE '[["${grantId}","' || (${cost}) || '"]]' END`;
  const request = {
    organization_id: `'${organizationId}'`,
    id,
    token_id: `'${BULK_TOKEN}'`,
    request_id: "'req_' || n",
    model: "'sandbox/echo'",
    upstream: "'sandbox/echo'",
    charge: `'o' || CASE ${cost} WHEN 0 THEN '' ELSE CAST(${cost} AS text) END || '@1000000 r@0'`,
    input_tokens: "0",
    output_tokens: cost,
    amount: "1000",
    cost,
    shortfall: "0",
    draws,
    basis: "'reported'",
    ending: "'complete'",
    made_at: at,
    ended_at: `${at} + 500`,
    is_late: "0",
    ...bulk.columns,
  };
  const insert = (table: string, columns: Record<string, string>) =>
    `${kind === "sqlite" ? "" : series} INSERT INTO ${table} (${Object.keys(columns).join(", ")})
     ${kind === "sqlite" ? series : ""} SELECT ${Object.values(columns).join(", ")} FROM series`;
  return [
    ...(bulk.makesToken === true ? tokenStatements(kind, organizationId) : []),
    insert("request", request),
    `UPDATE balance SET available = available - ${total}, spent = spent + ${total} WHERE organization_id = '${organizationId}'`,
    // Without statistics, PostgreSQL plans for a small table.
    "ANALYZE",
    `UPDATE credit_grant SET remaining = remaining - ${total} WHERE organization_id = '${organizationId}' AND id = '${grantId}'`,
  ];
}

/** SQL for the token that is charged, with the audit record of its creation. */
function tokenStatements(kind: "sqlite" | "postgres", organizationId: string): string[] {
  const nowMs = Date.now();
  const hash = randomBytes(32).toString("hex");
  const terms = { organizationId, id: BULK_TOKEN, name: "bulk", prefix: "sk-tg-bulk", scopes: [], createdAtMs: nowMs };
  const change = { action: "token.create", organizationId, subjectId: BULK_TOKEN };
  const record = auditRow(COMMAND_ACTOR, change, { clock: () => nowMs, newId: () => `f${hash.slice(1, 32)}` });
  return [
    `INSERT INTO token (organization_id, id, name, kind, hash, prefix, scopes, created_at, caller_id)
     VALUES ('${organizationId}', '${BULK_TOKEN}', 'bulk', 'secret', ${kind === "sqlite" ? `x'${hash}'` : `'\\x${hash}'`}, 'sk-tg-bulk', '[]',
       ${nowMs}, '${BULK_TOKEN}') ON CONFLICT DO NOTHING`,
    auditStatement({ ...record, rows: { token: [{ ...terms, revokedAtMs: null }] } }),
  ];
}

/** SQL that inserts an audit record. */
export function auditStatement(audit: AuditOfRows): string {
  const texts = AUDIT_ENTRY.insert(withChecksum(audit)).pieces.map((piece) => {
    if (typeof piece === "string") return piece;
    return typeof piece.value === "string" ? `'${piece.value.replaceAll("'", "''")}'` : String(piece.value);
  });
  return texts.join("");
}

/** SQL for the partitions of past months: the service makes those of the present and the next months, these in their time. */
export function pastPartitions(fromMs: number, toMs = Date.now()): string[] {
  const statements: string[] = [];
  for (let ahead = 0; ; ahead += 1) {
    const { name, ...month } = partitionOf(new Date(fromMs), ahead);
    if (month.fromMs > toMs) return statements;
    const bounds = `FROM ('${idAt(month.fromMs)}') TO ('${idAt(month.toMs)}')`;
    statements.push(`CREATE TABLE IF NOT EXISTS ${name} PARTITION OF request FOR VALUES ${bounds}`);
  }
}
