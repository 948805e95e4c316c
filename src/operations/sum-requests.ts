import { ApiError } from "../errors.ts";
import type { RequestGrouping } from "../stores/queries/request-sums.ts";
import { requestFilterOf, requireEnded } from "./list-requests.ts";
import { operation } from "./operation.ts";

export const sumRequests = operation({
  route: "GET /requests/sums",
  permission: "requests:read",
  summary: "Add up ended requests by token, model, organization, route, budget, value of metadata, hour or day",
  query: (s) =>
    s.Strict({
      ...s.RequestFilters,
      cursor: s.PageQuery.cursor,
      by: s.Type.Enum(["organization", "token", "model", "route", "budget", "metadata", "hour", "day"], {
        description: "`metadata`: by the value of `metadata_key`. Hours and days are in UTC.",
      }),
    }),
  answer: {
    status: 200,
    description:
      "The sums of a part of the period, the latest part first. The sums of a group are those of all pages together.",
    schema: (s) => s.PageOf(s.SummedRequests),
  },
  handle({ requests }, call) {
    const { by, metadata_key: key, cursor = null } = call.query;
    requireEnded("status", call.query);
    return requests.sums(requestFilterOf(call), groupingOf(by, key), cursor);
  },
});

function groupingOf(by: RequestGrouping["by"], key: string | undefined): RequestGrouping {
  if (by !== "metadata") return { by };
  if (key !== undefined) return { by, key };
  throw new ApiError("invalid_value", "Invalid 'by': 'metadata' needs 'metadata_key'.", { param: "by" });
}
