import type { Static } from "typebox";
import type { StatementFilter } from "../api/admin/credits.ts";
import { isoDay, isoMonth } from "../api/time.ts";
import type { StatementSelection } from "../reports/statement.ts";
import { found } from "./core.ts";
import { type OperationCall, operation, sendFile, timesOf } from "./operation.ts";

export const showStatement = operation({
  route: "GET /organizations/:id/statement",
  permission: "credits:read",
  summary: "List everything that changed an organization's credits, the oldest first, with the balance after it",
  query: (s) => s.Strict({ ...s.PageQuery, ...s.StatementFilter }),
  answer: { status: 200, description: "A page.", schema: (s) => s.StatementPage },
  handle: async ({ statements }, call) => statements.page({ ...selectionOf(call), ...call.page }),
});

type StatementQuery = { [Name in keyof typeof StatementFilter]?: Static<(typeof StatementFilter)[Name]> };

function selectionOf({ params, query }: Pick<OperationCall<StatementQuery>, "params" | "query">): StatementSelection {
  const { fromMs, toMs } = timesOf(query);
  return { organizationId: params.id, kind: query.kind ?? null, fromMs: fromMs ?? undefined, toMs: toMs ?? undefined };
}

export const exportStatement = operation({
  route: "GET /organizations/:id/statement.csv",
  permission: "credits:read",
  summary: "Export the whole statement as comma-separated values",
  query: (s) => s.Strict(s.StatementFilter),
  answer: { status: 200, description: "The lines.", schema: (s) => s.Type.String(), contentType: "text/csv" },
  async handle(services, call) {
    const selection = selectionOf(call);
    const { organizationId } = selection;
    return sendFile(services, call, `exports:${organizationId}`, async () => {
      const { name } = await found(services.accounts.organization(organizationId));
      const text = services.statements.csv(selection, { forOperator: call.may("upstreams:read") });
      return { name: `${fileNameOf(name, selection)}.csv`, text };
    });
  },
});

/** Names a file after the organization and the period, in ASCII: `northwind-2026-10-statement`. */
function fileNameOf(name: string, { organizationId, fromMs, toMs, kind }: StatementSelection): string {
  const words = name
    .normalize("NFKD")
    .replace(/[^\w]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .toLowerCase();
  const parts = [words || organizationId, periodOf(fromMs, toMs), "statement", kind];
  return parts.filter((part) => part !== null).join("-");
}

/** Returns a month (`2026-10`), or the first and the last day of another period; null for a period without an end. */
function periodOf(fromMs: number | undefined, toMs: number | undefined): string | null {
  if (fromMs === undefined || toMs === undefined) return null;
  const [month, lastMs] = [isoMonth(fromMs), Math.max(fromMs, toMs - 1)];
  const isMonth = fromMs === Date.parse(`${month}-01`) && isoMonth(lastMs) === month && isoMonth(toMs) !== month;
  const [from, to] = [fromMs, lastMs].map(isoDay);
  return isMonth ? month : `${from}-to-${to}`;
}
