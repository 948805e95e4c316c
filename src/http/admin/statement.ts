import { Readable } from "node:stream";
import { type Static, Type } from "typebox";
import { StatementCsvQuery, StatementPage, StatementQuery } from "../../contract/admin/credits.ts";
import type { StatementSelection } from "../../ledger/statement.ts";
import { nothingThere, orRefuse, pageOf, requireOwn, timeOf } from "./answers.ts";
import { type AdminCall, type AdminServices, adminEndpoint } from "./endpoint.ts";

const showStatement = adminEndpoint({
  method: "GET",
  path: "/organizations/:id/statement",
  access: "member",
  operationId: "showStatement",
  summary: "List everything that changed an organization's credits, the oldest first, with the balance after it",
  query: StatementQuery,
  response: { status: 200, description: "A page.", schema: StatementPage },
  async handle(services, call) {
    await requireVisible(services, call);
    return orRefuse(services.statements.page({ ...selectionOf(call), ...pageOf(call.query) }));
  },
});

const exportStatement = adminEndpoint({
  method: "GET",
  path: "/organizations/:id/statement.csv",
  access: "member",
  operationId: "exportStatement",
  summary: "The same as comma-separated values, whole",
  query: StatementCsvQuery,
  response: { status: 200, description: "The lines.", schema: Type.String(), contentType: "text/csv" },
  async handle(services, call) {
    await requireVisible(services, call);
    const selection = selectionOf(call);
    const name = selection.kind === null ? "statement" : `statement-${selection.kind}`;
    call.reply.headers({
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": `attachment; filename="${name}.csv"`,
    });
    return call.reply.send(Readable.from(services.statements.csv(selection)));
  },
});

export const statementEndpoints = [showStatement, exportStatement];

async function requireVisible({ directory }: AdminServices, { who, params }: AdminCall): Promise<void> {
  requireOwn(who, params.id);
  if ((await directory.organization(params.id)) === undefined) throw nothingThere();
}

interface StatementCall {
  params: { id: string };
  query: Static<typeof StatementCsvQuery>;
}

function selectionOf({ params, query }: StatementCall): StatementSelection {
  const { from, to, kind = null } = query;
  const period = { fromMs: timeOf("from", from) ?? undefined, toMs: timeOf("to", to) ?? undefined };
  return { organizationId: params.id, kind, ...period };
}
