import { AuditPage, AuditQuery, Overview, OverviewQuery } from "../../api/admin/reports.ts";
import { ApiError } from "../../errors.ts";
import { DAY_MS, dayOf } from "../../reports/usage-days.ts";
import { adminEndpoint, listOf, notFound, organizationIn, pageOf, timeOf } from "./endpoint.ts";

const DAYS_MAX = 366;
const DAYS_DEFAULT = 30;

const showOverview = adminEndpoint({
  method: "GET",
  path: "/overview",
  access: "member",
  operationId: "showOverview",
  summary: "Show credits and usage by day, with the models, tokens and organizations that spend most",
  query: OverviewQuery,
  response: { status: 200, description: "The overview.", schema: Overview },
  async handle({ overviews, directory, clock }, { who, query }): Promise<Overview> {
    const organizationId = organizationIn(who, query.organization_id);
    if (organizationId !== null && (await directory.organization(organizationId)) === undefined) throw notFound();
    const toDay = timeOf("to", query.to) ?? dayOf(clock());
    const fromDay = timeOf("from", query.from) ?? toDay - (DAYS_DEFAULT - 1) * DAY_MS;
    if (fromDay > toDay || toDay - fromDay >= DAYS_MAX * DAY_MS) {
      const message = `Invalid 'from': expected a day at or before 'to', and at most ${DAYS_MAX} days in total.`;
      throw new ApiError("invalid_value", message, { param: "from" });
    }
    return overviews.overview({ organizationId, forOperator: who?.role === "operator", fromDay, toDay });
  },
});

const listAudit = adminEndpoint({
  method: "GET",
  path: "/audit",
  access: "operator",
  operationId: "listAudit",
  summary: "List the audit log, the newest entries first",
  query: AuditQuery,
  response: { status: 200, description: "A page.", schema: AuditPage },
  async handle({ audit }, { query }) {
    const filter = { organizationId: query.organization_id ?? null, action: query.action ?? null };
    return listOf(await audit.entries({ ...filter, ...pageOf(query) }));
  },
});

export const reportEndpoints = [showOverview, listAudit];
