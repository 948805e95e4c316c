import { knownOrganization } from "./core.ts";
import { operation, organizationIn, timeOf } from "./operation.ts";

export const showOverview = operation({
  route: "GET /overview",
  permission: "usage:read",
  summary: "Show credits and usage by day, with the models, tokens and organizations that spend most",
  query: (s) =>
    s.Strict({
      organization_id: s.Type.Optional(s.Id),
      from: s.Type.Optional(s.Day),
      to: s.Type.Optional(s.Day),
    }),
  answer: { status: 200, description: "The overview.", schema: (s) => s.Overview },
  async handle(services, { who, may, query }) {
    return services.overviews.overview({
      organizationId: await knownOrganization(services, organizationIn(who, query.organization_id)),
      forOperator: may("upstreams:read"),
      fromDay: timeOf("from", query.from),
      toDay: timeOf("to", query.to),
    });
  },
});
