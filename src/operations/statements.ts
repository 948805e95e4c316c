import type { Static } from "typebox";
import { pageOf } from "../admin/directory.ts";
import type { StatementFilter } from "../api/admin/credits.ts";
import { isoDay, isoMonth } from "../api/time.ts";
import { statementId, statementText } from "../credits/monthly-statement.ts";
import { invalidCursor } from "../errors.ts";
import { csvOfStatement, toListedStatement, toMonthlyStatement } from "../reports/monthly-statement.ts";
import type { StatementSelection } from "../reports/statement.ts";
import { argument, command, jsonOf, optional, text, toggle } from "./command.ts";
import { type Core, found, notFound } from "./core.ts";
import {
  type OperationCall,
  operation,
  organizationIn,
  requireOwn,
  sendFile,
  sharedOperation,
  timeOf,
  timesOf,
} from "./operation.ts";

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

export const listMonthStatements = sharedOperation({
  route: "GET /statements",
  permission: "credits:read",
  summary: "List the monthly statements, the highest number first; members see those of their organization",
  query: (s) => s.Strict({ ...s.PageQuery, ...s.StatementSearch }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.ListedStatement) },
  async handle({ monthlyStatements }, { who, query, page: { cursor, limit } }) {
    const before = cursor === null ? null : Number(/^before_(\d{1,15})$/.exec(cursor)?.[1] ?? Number.NaN);
    if (Number.isNaN(before)) throw invalidCursor();
    const rows = await monthlyStatements.list({
      organizationId: organizationIn(who, query.organization_id),
      month: query.month === undefined ? null : timeOf("month", `${query.month}-01`),
      before,
      limit: limit + 1,
    });
    return pageOf(rows, limit, toListedStatement, ({ number }) => `before_${number}`);
  },
  commands: (make) => [
    make.list({
      usage: "statement list",
      summary: "List the monthly statements, the lowest number first",
      flags: {
        organization_id: optional("--org <id>", "only those of this organization", text),
        month: optional("--month <month>", "only those of this month, such as 2030-01", text),
      },
      isOldestFirst: true,
      columns: {
        ID: ({ id }) => id,
        MONTH: ({ month }) => month,
        ORGANIZATION: ({ organization_id }) => organization_id,
        NAME: ({ customer }) => customer.name,
        OPENING: ({ opening }) => opening,
        CHARGED: ({ totals }) => totals.charge,
        CLOSING: ({ closing }) => closing,
      },
    }),
  ],
});

/** Finds a statement of the caller's organization by its id, the number with its prefix. Rejects with not_found. */
async function findStatement(core: Core, { who, params: { id } }: Pick<OperationCall, "who" | "params">) {
  const number = Number(/\d{1,15}$/.exec(id)?.[0] ?? 0);
  const row = await found(core.monthlyStatements.find(number), { kind: "statement", id });
  if (statementId(row) !== id) throw notFound();
  if (who !== null) requireOwn(who, row.organizationId);
  return row;
}

export const showMonthStatement = operation({
  route: "GET /statements/:id",
  permission: "credits:read",
  summary: "Show a monthly statement, with its bookings and its charges by model and by token",
  answer: { status: 200, description: "The statement, which never changes.", schema: (s) => s.MonthlyStatement },
  handle: async (services, call) => toMonthlyStatement(await findStatement(services, call)),
  commands: [
    command({
      usage: "statement show <id>",
      summary: "Show a monthly statement",
      flags: { id: argument("<id>", text), csv: toggle("--csv", "print comma-separated values") },
      async run(services, { id, csv }) {
        const row = await findStatement(services, { who: null, params: { id } });
        const lines = csv ? csvOfStatement(row) : statementText(row);
        return { json: jsonOf(toMonthlyStatement(row)), text: lines.trimEnd() };
      },
    }),
  ],
});

export const exportMonthStatement = operation({
  route: "GET /statements/:id/csv",
  permission: "credits:read",
  summary: "Export a monthly statement as comma-separated values",
  answer: { status: 200, description: "The lines.", schema: (s) => s.Type.String(), contentType: "text/csv" },
  async handle(services, call) {
    const row = await findStatement(services, call);
    const file = { name: `${call.params.id}.csv`, text: [csvOfStatement(row)] };
    return sendFile(services, call, `statements:${row.organizationId}`, async () => file);
  },
});
