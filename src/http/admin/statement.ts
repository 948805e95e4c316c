import { type Static, Type } from "typebox";
import { StatementCsvQuery, StatementPage, StatementQuery } from "../../api/admin/credits.ts";
import type { StatementSelection } from "../../reports/statement.ts";
import { streamText } from "../connection.ts";
import { adminEndpoint, pageOf, requireOrganization, requireOwn, timeOf, withApiErrors } from "./endpoint.ts";

/** Number of statement exports of one organization that may run at once in this process, for all callers together. */
const EXPORTS_AT_ONCE_MAX = 2;

const showStatement = adminEndpoint({
  method: "GET",
  path: "/organizations/:id/statement",
  access: "member",
  operationId: "showStatement",
  summary: "List everything that changed an organization's credits, the oldest first, with the balance after it",
  query: StatementQuery,
  response: { status: 200, description: "A page.", schema: StatementPage },
  async handle(services, call) {
    requireOwn(call.who, call.params.id);
    await requireOrganization(services, call.params.id);
    return withApiErrors(services.statements.page({ ...selectionOf(call), ...pageOf(call.query) }));
  },
});

const exportStatement = adminEndpoint({
  method: "GET",
  path: "/organizations/:id/statement.csv",
  access: "member",
  operationId: "exportStatement",
  summary: "Export the whole statement as comma-separated values",
  query: StatementCsvQuery,
  response: { status: 200, description: "The lines.", schema: Type.String(), contentType: "text/csv" },
  async handle(services, call) {
    requireOwn(call.who, call.params.id);
    const selection = selectionOf(call);
    const name = selection.kind === null ? "statement" : `statement-${selection.kind}`;
    const limit = { key: `exports:${call.params.id}`, limit: EXPORTS_AT_ONCE_MAX };
    const leave = services.gateway.limits.enterExport(limit);
    try {
      await requireOrganization(services, call.params.id);
      const headers = {
        "content-type": "text/csv; charset=utf-8",
        "content-disposition": `attachment; filename="${name}.csv"`,
      };
      await streamText(
        call.reply,
        headers,
        services.statements.csv(selection, { forOperator: call.who?.role === "operator" }),
      );
    } finally {
      leave();
    }
    return call.reply.hijack();
  },
});

export const statementEndpoints = [showStatement, exportStatement];

interface StatementCall {
  params: { id: string };
  query: Static<typeof StatementCsvQuery>;
}

function selectionOf({ params, query }: StatementCall): StatementSelection {
  const { from, to, kind = null } = query;
  const period = { fromMs: timeOf("from", from) ?? undefined, toMs: timeOf("to", to) ?? undefined };
  return { organizationId: params.id, kind, ...period };
}
