import { AuditPage, AuditQuery } from "../../api/admin/audit.ts";
import { listOf, pageOf } from "./answers.ts";
import { adminEndpoint } from "./endpoint.ts";

const listAudit = adminEndpoint({
  method: "GET",
  path: "/audit",
  access: "operator",
  operationId: "listAudit",
  summary: "List what was changed and by whom, the newest first",
  query: AuditQuery,
  response: { status: 200, description: "A page.", schema: AuditPage },
  async handle({ audit }, { query }) {
    const filter = { organizationId: query.organization_id ?? null, action: query.action ?? null };
    return listOf(await audit.entries({ ...filter, ...pageOf(query) }));
  },
});

export const auditEndpoints = [listAudit];
