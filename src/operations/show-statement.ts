import type { StatementEntry } from "../api/admin/credits.ts";
import type { StatementSelection } from "../reports/statement.ts";
import { type OperationCall, operation, timeOf } from "./operation.ts";

export const showStatement = operation({
  route: "GET /organizations/:id/statement",
  permission: "credits:read",
  summary: "List everything that changed an organization's credits, the oldest first, with the balance after it",
  query: (s) => s.Strict({ ...s.PageQuery, ...s.StatementFilter }),
  answer: { status: 200, description: "A page.", schema: (s) => s.StatementPage },
  handle: async ({ statements }, call) => statements.page({ ...selectionOf(call), ...call.page }),
});

interface StatementQuery {
  from?: string;
  to?: string;
  kind?: StatementEntry["kind"];
}

/** Returns the entries of a statement that a query asks for. */
export function selectionOf({
  params,
  query,
}: Pick<OperationCall<StatementQuery>, "params" | "query">): StatementSelection {
  const { from, to, kind = null } = query;
  const period = { fromMs: timeOf("from", from) ?? undefined, toMs: timeOf("to", to) ?? undefined };
  return { organizationId: params.id, kind, ...period };
}
