import type { ServiceRole } from "../api/admin/roles.ts";
import type { AdminRows, OperatorRow } from "../stores/queries/admin.ts";
import { type Actor, type AuditTime, auditRow, SERVICE_ACTOR } from "./audit.ts";
import { ADMIN_TOKEN_MARK, makeId, makeToken, type RandomBytes } from "./token.ts";

export interface OperatorsOptions extends AuditTime {
  admin: AdminRows;
  random: RandomBytes;
}

/** An operator with their token, at the only moment when it is known. */
export interface NewOperatorToken {
  row: OperatorRow;
  token: string;
}

/** The operator who holds the admin token. */
const ADMIN = { name: "admin", role: "operator" } as const;

/** Creates the admin token of a store that never had an operator; otherwise returns null. Only one of several callers gets it. */
export async function firstAdminToken(options: OperatorsOptions): Promise<string | null> {
  const { token, row } = newOperator(options, ADMIN);
  const record = auditRow(SERVICE_ACTOR, changeOf("admin_token.create", row), options);
  return (await options.admin.insertFirstOperator(row, record)) ? token : null;
}

/** Creates an admin token. All earlier operators end, and so do their sessions. */
export async function replaceAdminToken(options: OperatorsOptions, actor: Actor): Promise<NewOperatorToken> {
  const made = newOperator(options, ADMIN);
  await options.admin.replaceOperators(made.row, auditRow(actor, changeOf("admin_token.replace", made.row), options));
  return made;
}

/** Creates an operator. Returns undefined if an operator who is not revoked has the same name. */
export async function insertOperator(
  options: OperatorsOptions,
  actor: Actor,
  fields: { name: string; role: ServiceRole },
): Promise<NewOperatorToken | undefined> {
  const made = newOperator(options, fields);
  const { prefix } = made.row;
  const record = auditRow(actor, { ...changeOf("operator.create", made.row), after: { ...fields, prefix } }, options);
  return (await options.admin.insertOperator(made.row, record)) ? made : undefined;
}

function changeOf(action: string, { id, prefix }: OperatorRow) {
  return { action, organizationId: null, subjectId: id, after: { prefix } };
}

function newOperator(
  { random, clock }: OperatorsOptions,
  fields: { name: string; role: ServiceRole },
): NewOperatorToken {
  const { token, hash, prefix } = makeToken(random, ADMIN_TOKEN_MARK);
  return {
    token,
    row: { id: makeId("adm", random), hash, prefix, ...fields, createdAtMs: clock(), revokedAtMs: null },
  };
}
