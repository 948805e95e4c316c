import { operation } from "./operation.ts";

export const showService = operation({
  route: "GET /service",
  permission: "service:read",
  summary: "Show the facts of the service that need no sign-in",
  answer: { status: 200, description: "The facts.", schema: (s) => s.ServiceFacts },
  handle: async ({ facts }) => facts,
});
