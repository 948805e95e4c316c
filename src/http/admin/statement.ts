import { Readable } from "node:stream";
import { Type } from "typebox";
import { StatementCsvQuery, StatementPage, StatementQuery } from "../../contract/admin/credits.ts";
import type { Period } from "../../ledger/statement.ts";
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
    const { params, query } = call;
    const request = { organizationId: params.id, kind: query.kind ?? null, ...periodOf(query), ...pageOf(query) };
    return orRefuse(services.statements.page(request));
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
    const { params, query, reply } = call;
    reply.headers({
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": `attachment; filename="statement.csv"`,
    });
    return reply.send(Readable.from(services.statements.csv(params.id, periodOf(query))));
  },
});

export const statementEndpoints = [showStatement, exportStatement];

async function requireVisible({ directory }: AdminServices, { who, params }: AdminCall): Promise<void> {
  requireOwn(who, params.id);
  if ((await directory.organization(params.id)) === undefined) throw nothingThere();
}

function periodOf({ from, to }: { from?: string | undefined; to?: string | undefined }): Period {
  return { fromMs: timeOf("from", from) ?? undefined, toMs: timeOf("to", to) ?? undefined };
}
