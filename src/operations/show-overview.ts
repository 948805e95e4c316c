import { ApiError } from "../errors.ts";
import { DAY_MS, dayOf } from "../reports/usage-days.ts";
import { knownOrganization } from "./core.ts";
import { operation, organizationIn, timeOf } from "./operation.ts";

const DAYS_MAX = 366;
const DAYS_DEFAULT = 30;

export const showOverview = operation({
  route: "GET /overview",
  access: "member",
  summary: "Show credits and usage by day, with the models, tokens and organizations that spend most",
  query: (s) =>
    s.Strict({
      organization_id: s.Type.Optional(s.Id),
      from: s.Type.Optional(s.Day),
      to: s.Type.Optional(s.Day),
    }),
  answer: { status: 200, description: "The overview.", schema: (s) => s.Overview },
  async handle(services, { who, query }) {
    const organizationId = await knownOrganization(services, organizationIn(who, query.organization_id));
    const toDay = timeOf("to", query.to) ?? dayOf(services.clock());
    const fromDay = timeOf("from", query.from) ?? toDay - (DAYS_DEFAULT - 1) * DAY_MS;
    if (fromDay > toDay || toDay - fromDay >= DAYS_MAX * DAY_MS) {
      const message = `Invalid 'from': expected a day at or before 'to', and at most ${DAYS_MAX} days in total.`;
      throw new ApiError("invalid_value", message, { param: "from" });
    }
    const forOperator = who?.role === "operator";
    return services.overviews.overview({ organizationId, forOperator, fromDay, toDay });
  },
});
