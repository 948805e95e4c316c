import { Overview, OverviewQuery } from "../../api/admin/overview.ts";
import { ApiError } from "../../errors.ts";
import { DAY_MS, dayOf } from "../../reports/usage-days.ts";
import { nothingThere, organizationIn, timeOf } from "./answers.ts";
import { adminEndpoint } from "./endpoint.ts";

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
    if (organizationId !== null && (await directory.organization(organizationId)) === undefined) throw nothingThere();
    const toDay = timeOf("to", query.to) ?? dayOf(clock());
    const fromDay = timeOf("from", query.from) ?? toDay - (DAYS_DEFAULT - 1) * DAY_MS;
    if (fromDay > toDay || toDay - fromDay >= DAYS_MAX * DAY_MS) {
      const message = `Invalid 'from': expected a day at or before 'to', and at most ${DAYS_MAX} days in all.`;
      throw new ApiError("invalid_value", message, { param: "from" });
    }
    return overviews.overview({ organizationId, fromDay, toDay });
  },
});

export const overviewEndpoints = [showOverview];
