import type { AuditAction } from "../api/admin/audit.ts";
import type { AdminRows, AdminTokenRow } from "../stores/queries/admin.ts";
import { type Actor, type AuditTime, auditRow, SERVICE_ACTOR } from "./audit.ts";
import { ADMIN_TOKEN_MARK, makeId, makeToken, type RandomBytes } from "./token.ts";

export interface AdminTokensOptions extends AuditTime {
  rows: AdminRows;
  random: RandomBytes;
}

/** Creates the admin token of a store that never had one; otherwise returns null. Only one of several callers gets it. */
export async function firstAdminToken(options: AdminTokensOptions): Promise<string | null> {
  const { token, row } = newAdminToken(options.random, options.clock());
  const record = auditRow(SERVICE_ACTOR, changeOf("admin_token.create", row), options);
  return (await options.rows.insertFirstAdminToken(row, record)) ? token : null;
}

/** Creates an admin token. All earlier ones end, and so do their sessions. */
export async function replaceAdminToken(
  options: AdminTokensOptions,
  actor: Actor,
): Promise<{ row: AdminTokenRow; token: string }> {
  const made = newAdminToken(options.random, options.clock());
  await options.rows.replaceAdminTokens(made.row, auditRow(actor, changeOf("admin_token.replace", made.row), options));
  return made;
}

function changeOf(action: AuditAction, { id, prefix }: AdminTokenRow) {
  return { action, organizationId: null, subjectId: id, after: { prefix } };
}

function newAdminToken(random: RandomBytes, nowMs: number): { row: AdminTokenRow; token: string } {
  const { token, hash, prefix } = makeToken(random, ADMIN_TOKEN_MARK);
  return { token, row: { id: makeId("adm", random), hash, prefix, createdAtMs: nowMs, revokedAtMs: null } };
}
