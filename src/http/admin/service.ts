import { ServiceFacts } from "../../api/admin/session.ts";
import { adminEndpoint } from "./endpoint.ts";

const showService = adminEndpoint({
  method: "GET",
  path: "/service",
  access: "public",
  operationId: "showService",
  summary: "What may be known of the service before anyone has signed in",
  response: { status: 200, description: "The facts.", schema: ServiceFacts },
  async handle({ facts }): Promise<ServiceFacts> {
    return facts;
  },
});

export const serviceEndpoints = [showService];
