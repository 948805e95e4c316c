import { RequestDetail, RequestPage, RequestQuery } from "../../api/admin/request.ts";
import { listOf, nothingThere, organizationIn, orRefuse, pageOf, requireOwn, timeOf } from "./answers.ts";
import { adminEndpoint } from "./endpoint.ts";

const listRequests = adminEndpoint({
  method: "GET",
  path: "/requests",
  access: "member",
  operationId: "listRequests",
  summary: "List requests for completions, the newest first",
  query: RequestQuery,
  response: { status: 200, description: "A page. One that was searched long for may be short.", schema: RequestPage },
  async handle({ requests }, { who, query }) {
    const filter = {
      organizationId: organizationIn(who, query.organization_id),
      tokenId: query.token_id ?? null,
      model: query.model ?? null,
      requestId: query.request_id ?? null,
      status: query.status ?? null,
      fromMs: timeOf("from", query.from),
      toMs: timeOf("to", query.to),
    };
    return listOf(await orRefuse(requests.list({ ...filter, ...pageOf(query) })));
  },
});

const showRequest = adminEndpoint({
  method: "GET",
  path: "/requests/:id",
  access: "member",
  operationId: "showRequest",
  summary: "Explain one request: tokens, prices, hold, charge, route, attempts and times",
  response: { status: 200, description: "The request.", schema: RequestDetail },
  async handle({ requests }, { who, params }) {
    const request = await requests.find(params.id);
    if (request === undefined) throw nothingThere();
    requireOwn(who, request.organization_id);
    if (who?.role === "operator") return request;
    return { ...request, provider_response_id: null, provider_cost: null };
  },
});

export const requestEndpoints = [listRequests, showRequest];
