import { auditRow } from "../admin/audit.ts";
import { toOperator } from "../admin/directory.ts";
import { UnknownIdError } from "../errors.ts";
import type { OperatorRow } from "../stores/queries/admin.ts";
import { argument, command, jsonOf, text } from "./command.ts";
import { type Core, notFound } from "./core.ts";
import { operation } from "./operation.ts";

export const revokeOperator = operation({
  route: "DELETE /operators/:id",
  permission: "operators:write",
  summary: "Revoke an operator: the token and all sessions end at once; a repetition changes nothing",
  answer: { status: 200, description: "The operator as they are now.", schema: (s) => s.Operator },
  handle: async (services, { params }) => toOperator(await endOperator(services, params.id)),
  commands: [
    command({
      usage: "operator revoke <id>",
      summary: "Revoke an operator: the token and all sessions end at once",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const operator = toOperator(await endOperator(services, id));
        const text = `${operator.name} (${id}) is revoked since ${operator.revoked_at}.`;
        return { json: jsonOf(operator), text };
      },
    }),
  ],
});

async function endOperator(core: Core, id: string): Promise<OperatorRow> {
  const row = await operatorRow(core, id);
  if (row.revokedAtMs !== null) return row;
  const before = { name: row.name, role: row.role, prefix: row.prefix };
  const change = { action: "operator.revoke", organizationId: null, subjectId: id, before };
  await core.admin.revokeOperator(id, core.clock(), auditRow(core.actor, change, core));
  return operatorRow(core, id);
}

async function operatorRow({ admin }: Core, id: string): Promise<OperatorRow> {
  const row = await admin.operator(id);
  if (row === undefined) throw notFound(new UnknownIdError("operator", id, "operator list"));
  return row;
}
