import { UsageReport } from "../../api/usage.ts";
import { ApiError } from "../../errors.ts";
import { principalOf } from "../authentication.ts";
import type { Endpoint } from "./endpoint.ts";

export const reportUsage: Endpoint = {
  method: "GET",
  path: "/v1/usage",
  scope: "usage:read",
  operationId: "reportUsage",
  summary: "Report credits",
  description: "The credits of the token's organization. Not available for the playground organization.",
  response: { description: "The credits.", schema: UsageReport },
  async handle({ usageReport }, request): Promise<UsageReport> {
    const principal = principalOf(request);
    if (principal.organizationKind === "playground") throw new ApiError("usage_not_available_for_playground");
    return usageReport(principal);
  },
};
