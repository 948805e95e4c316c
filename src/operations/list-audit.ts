import { operation } from "./operation.ts";

export const listAudit = operation({
  route: "GET /audit",
  permission: "audit:read",
  summary: "List the audit log, the newest entries first",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      organization_id: s.Type.Optional(s.Id),
      action: s.Type.Optional(s.Type.String({ minLength: 1, maxLength: 100 })),
    }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.AuditEntry) },
  handle: ({ audit }, { query: { organization_id: organizationId = null, action = null }, page }) =>
    audit.entries({ organizationId, action, ...page }),
});
