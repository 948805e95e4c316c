import type { OperatorRow } from "../stores/queries/admin.ts";
import type { Store } from "../stores/store.ts";
import { type Actor, type AuditTime, auditRow, SERVICE_ACTOR } from "./audit.ts";
import { ADMIN_TOKEN_MARK, makeId, makeToken, type RandomBytes } from "./token.ts";

type OperatorFields = Pick<OperatorRow, "name" | "role">;

export interface OperatorsOptions extends AuditTime {
  admin: Store["admin"];
  random: RandomBytes;
}

const ADMIN = { name: "admin", role: "operator" } as const;

/** Creates the admin token of a store that never had an operator; otherwise returns null. Only one of several callers gets it. */
export async function firstAdminToken(options: OperatorsOptions): Promise<string | null> {
  const { row, token, record } = newOperator(options, SERVICE_ACTOR, "admin_token.create", ADMIN);
  return (await options.admin.insertFirstOperator(row, record)) ? token : null;
}

/** Creates an admin token. All earlier operators end, and so do their sessions. */
export async function replaceAdminToken(options: OperatorsOptions, actor: Actor) {
  const { row, token, record } = newOperator(options, actor, "admin_token.replace", ADMIN);
  await options.admin.replaceOperators(row, record);
  return { row, token };
}

/** Creates an operator. Returns undefined if an operator who is not revoked has the same name. */
export async function insertOperator(options: OperatorsOptions, actor: Actor, fields: OperatorFields) {
  const { row, token, record } = newOperator(options, actor, "operator.create", fields, fields);
  return (await options.admin.insertOperator(row, record)) ? { row, token } : undefined;
}

/** Makes an operator, their token, and the audit record, which has the fields that are `shown`. */
function newOperator(options: OperatorsOptions, actor: Actor, action: string, fields: OperatorFields, shown = {}) {
  const { random, clock } = options;
  const { token, hash, prefix } = makeToken(random, ADMIN_TOKEN_MARK);
  const row = { id: makeId("adm", random), hash, prefix, ...fields, createdAtMs: clock(), revokedAtMs: null };
  const change = { action, organizationId: null, subjectId: row.id, after: { ...shown, prefix } };
  return { token, row, record: auditRow(actor, change, options) };
}
