import { operation } from "./operation.ts";

export const listGrants = operation({
  route: "GET /organizations/:id/grants",
  permission: "credits:read",
  summary: "List an organization's grants, the newest first",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Grant) },
  handle: ({ directory }, { params: { id: organizationId }, page }) => directory.grants({ organizationId, ...page }),
});
