import { knownOrganization } from "./core.ts";
import { operation } from "./operation.ts";

export const listGrants = operation({
  route: "GET /organizations/:id/grants",
  access: "member",
  summary: "List an organization's grants, the newest first",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Grant) },
  async handle(services, { params: { id: organizationId }, page }) {
    await knownOrganization(services, organizationId);
    return services.directory.grants({ organizationId, ...page });
  },
});
