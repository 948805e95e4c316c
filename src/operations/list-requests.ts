import { operation, organizationIn, timeOf } from "./operation.ts";

export const listRequests = operation({
  route: "GET /requests",
  permission: "requests:read",
  summary: "List completion requests, the newest first",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      organization_id: s.Type.Optional(s.Id),
      token_id: s.Type.Optional(s.Id),
      model: s.Type.Optional(s.Type.String({ minLength: 1, maxLength: 200 })),
      status: s.Type.Optional(s.RequestStatus),
      request_id: s.Type.Optional(s.Id),
      from: s.Type.Optional(s.Time),
      to: s.Type.Optional(s.Time),
    }),
  answer: {
    status: 200,
    description: "A page. It may be short if the search took long.",
    schema: (s) => s.PageOf(s.RequestSummary),
  },
  async handle({ requests }, { who, may, query, page }) {
    const found = await requests.list({
      organizationId: organizationIn(who, query.organization_id),
      tokenId: query.token_id ?? null,
      model: query.model ?? null,
      requestId: query.request_id ?? null,
      status: query.status ?? null,
      fromMs: timeOf("from", query.from),
      toMs: timeOf("to", query.to),
      ...page,
    });
    if (may("upstreams:read")) return found;
    return { ...found, data: found.data.map((request) => ({ ...request, provider_cost: null })) };
  },
});
