import type { RequestDetail } from "../api/admin/request.ts";
import { notFound } from "./core.ts";
import { type OperationServices, operation, requireOwn } from "./operation.ts";

export const showRequest = operation({
  route: "GET /requests/:id",
  access: "member",
  summary: "Explain one request: tokens, prices, hold, charge, route, attempts and times",
  answer: { status: 200, description: "The request.", schema: (s) => s.RequestDetail },
  async handle(services, { who, params }) {
    const request = await requestAnswer(services, params.id);
    requireOwn(who, request.organization_id);
    if (who?.role === "operator") return request;
    return { ...request, provider_response_id: null, provider_cost: null };
  },
});

/** Returns a request as operators see it. Rejects with not_found. */
export async function requestAnswer(
  { requests }: Pick<OperationServices, "requests">,
  id: string,
): Promise<RequestDetail> {
  const request = await requests.find(id);
  if (request === undefined) throw notFound();
  return request;
}
