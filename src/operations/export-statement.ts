import { knownOrganization } from "./core.ts";
import { operation } from "./operation.ts";
import { selectionOf } from "./show-statement.ts";

/** Number of statement exports of one organization that may run at once in this process, for all callers together. */
const EXPORTS_AT_ONCE_MAX = 2;

export const exportStatement = operation({
  route: "GET /organizations/:id/statement.csv",
  permission: "credits:read",
  summary: "Export the whole statement as comma-separated values",
  query: (s) => s.Strict(s.StatementFilter),
  answer: { status: 200, description: "The lines.", schema: (s) => s.Type.String(), contentType: "text/csv" },
  async handle(services, call) {
    const selection = selectionOf(call);
    const { organizationId, kind } = selection;
    const name = kind === null ? "statement" : `statement-${kind}`;
    const leave = services.gateway.limits.enterExport({ key: `exports:${organizationId}`, limit: EXPORTS_AT_ONCE_MAX });
    try {
      await knownOrganization(services, organizationId);
      const headers = {
        "content-type": "text/csv; charset=utf-8",
        "content-disposition": `attachment; filename="${name}.csv"`,
      };
      const text = services.statements.csv(selection, { forOperator: call.may("upstreams:read") });
      return await call.connection.stream(headers, text);
    } finally {
      leave();
    }
  },
});
