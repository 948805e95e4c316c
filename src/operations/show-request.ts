import { found } from "./core.ts";
import { operation, requireOwn } from "./operation.ts";

export const showRequest = operation({
  route: "GET /requests/:id",
  permission: "requests:read",
  summary: "Explain one request: tokens, prices, hold, charge, route, attempts and times",
  answer: { status: 200, description: "The request.", schema: (s) => s.RequestDetail },
  async handle(services, { who, may, params }) {
    const request = await found(services.requests.find(params.id));
    requireOwn(who, request.organization_id);
    if (may("upstreams:read")) return request;
    return { ...request, provider_response_id: null, provider_cost: null };
  },
});
