import type { Static } from "typebox";
import type { AuditEntry, AuditFilters, MarginsQuery, SearchResult } from "../api/admin/reports.ts";
import { exportLines, lineFormats } from "../reports/csv.ts";
import type { AuditFilter } from "../stores/queries/admin.ts";
import { knownOrganization } from "./core.ts";
import {
  type OperationCall,
  type OperationServices,
  operation,
  organizationIn,
  sendFile,
  timeOf,
  timesOf,
} from "./operation.ts";
import { creatorIn, seenTokens } from "./token-bounds.ts";

export const showOverview = operation({
  route: "GET /overview",
  permission: "usage:read",
  summary: "Show credits and usage by day, with the models, tokens and organizations that spend most",
  query: (s) =>
    s.Strict({
      organization_id: s.Type.Optional(s.Id),
      from: s.Type.Optional(s.Day),
      to: s.Type.Optional(s.Day),
    }),
  answer: { status: 200, description: "The overview.", schema: (s) => s.Overview },
  async handle(services, { who, may, query }) {
    return services.overviews.overview({
      organizationId: await knownOrganization(services, organizationIn(who, query.organization_id)),
      forOperator: may("upstreams:read"),
      tokens: await seenTokens(services, who),
      fromDay: timeOf("from", query.from),
      toDay: timeOf("to", query.to),
    });
  },
});

async function marginsOf(services: OperationServices, { who, query }: OperationCall<MarginsQuery>) {
  return services.overviews.margins({
    organizationId: await knownOrganization(services, organizationIn(who, query.organization_id)),
    by: query.by ?? "model",
    fromDay: timeOf("from", query.from),
    toDay: timeOf("to", query.to),
  });
}

export const showMargins = operation({
  route: "GET /margins",
  permission: "upstreams:read",
  summary: "Compare charges with the costs that providers reported, by month and by model, route or organization",
  query: (s) => s.MarginsQuery,
  answer: { status: 200, description: "The margins.", schema: (s) => s.Margins },
  handle: (services, call) => marginsOf(services, call),
});

export const showLatencies = operation({
  route: "GET /latencies",
  permission: "upstreams:read",
  summary: "Show the time to the first token and the duration of a model's answers, by day and by route",
  query: (s) =>
    s.Strict({ model: s.Type.String({ minLength: 1 }), from: s.Type.Optional(s.Day), to: s.Type.Optional(s.Day) }),
  answer: { status: 200, description: "The latencies.", schema: (s) => s.Latencies },
  handle: ({ overviews }, { query: { model, from, to } }) =>
    overviews.latencies({ model, fromDay: timeOf("from", from), toDay: timeOf("to", to) }),
});

const MARGIN_COLUMNS = ["month", "name", "requests", "charged", "charged_with_cost", "provider_cost", "margin"];

export const exportMargins = operation({
  route: "GET /margins.csv",
  permission: "upstreams:read",
  summary: "Export margins by month as comma-separated values",
  query: (s) => s.MarginsQuery,
  answer: { status: 200, description: "The lines.", schema: (s) => s.Type.String(), contentType: "text/csv" },
  handle: (services, call) =>
    sendFile(services, call, "margins", async () => {
      const { data } = await marginsOf(services, call);
      const { csv } = lineFormats(MARGIN_COLUMNS, (row: (typeof data)[number]) => row);
      return { name: "margins.csv", text: [csv.head, ...data.map(csv.line)] };
    }),
});

const KIND_MAX = 5;

export const search = operation({
  route: "GET /search",
  permission: "organizations:read",
  summary: "Find organizations and tokens by name, id or prefix, grants by reference or id, and requests by any id",
  query: (s) => s.Strict({ query: s.Type.String({ minLength: 1, maxLength: 200 }) }),
  answer: {
    status: 200,
    description: "At most five of each kind, of those that the caller's role may read.",
    schema: (s) => s.PageOf(s.SearchResult),
  },
  async handle({ directory, requests }, { who, may, query: { query } }) {
    const organizationId = who?.organizationId ?? null;
    const page = { search: query, status: null, cursor: null, limit: KIND_MAX };
    const [organizations, tokens, grants, request] = await Promise.all([
      organizationId === null ? directory.organizations(page) : { data: [] },
      may("tokens:read") ? directory.tokens({ ...page, organizationId, createdBy: creatorIn(who) }) : { data: [] },
      may("credits:read") ? directory.grantsNamed(query, organizationId, KIND_MAX) : [],
      may("requests:read") ? requests.find(query) : undefined,
    ]);
    const isOwn = request !== undefined && (organizationId ?? request.organization_id) === request.organization_id;
    const data: SearchResult[] = [
      ...(isOwn ? [result("request", request.id, request.model ?? request.id, request)] : []),
      ...organizations.data.map(({ id, name }) =>
        result("organization", id, name, { organization_id: id, organization_name: name }),
      ),
      ...tokens.data.map((token) => result("token", token.id, token.name, token)),
      ...grants.map((grant) => result("grant", grant.id, grant.reference ?? grant.id, grant)),
    ];
    return { object: "list", data, next_cursor: null };
  },
});

function result(
  kind: SearchResult["kind"],
  id: string,
  name: string,
  { organization_id, organization_name }: Pick<SearchResult, "organization_id" | "organization_name">,
): SearchResult {
  return { object: "search_result", kind, id, name, organization_id, organization_name };
}

export const listAudit = operation({
  route: "GET /audit",
  permission: "audit:read",
  summary: "List the audit log, the newest entries first",
  query: (s) => s.Strict({ ...s.PageQuery, ...s.AuditFilters }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.AuditEntry) },
  handle: ({ audit }, { query, page }) => audit.entries({ ...auditFilterOf(query), ...page }),
});

type AuditQuery = { [Name in keyof typeof AuditFilters]?: Static<(typeof AuditFilters)[Name]> };

function auditFilterOf(query: AuditQuery): AuditFilter {
  const { organization_id: organizationId = null, subject_id: subjectId, action = null, actor } = query;
  return { organizationId, subjectId, action, actor, ...timesOf(query) };
}

const AUDIT_COLUMNS = [
  "id",
  "at",
  "actor_kind",
  "actor_id",
  "actor_name",
  "address",
  "action",
  "organization_id",
  "subject_id",
  "before",
  "after",
  "request_id",
];
const AUDIT_FORMATS = lineFormats(AUDIT_COLUMNS, ({ actor, before, after, ...values }: AuditEntry) => ({
  ...values,
  actor_kind: actor.kind,
  actor_id: actor.id,
  actor_name: actor.name,
  address: actor.address,
  before: before && JSON.stringify(before),
  after: after && JSON.stringify(after),
}));
const EXPORT_PAGE_ROWS = 200;

function auditExport(format: keyof typeof AUDIT_FORMATS, contentType: string, words: string) {
  return operation({
    route: `GET /audit.${format}`,
    permission: "audit:read",
    summary: `Export the entries of the audit log that match filters as ${words}, the newest first`,
    query: (s) => s.Strict(s.AuditFilters),
    answer: { status: 200, description: "The lines.", schema: (s) => s.Type.String(), contentType },
    handle(services, call) {
      const filter = auditFilterOf(call.query);
      return sendFile(services, call, "audit", async () => ({
        name: `audit.${format}`,
        text: exportLines(AUDIT_FORMATS[format], (cursor) =>
          services.audit.entries({ ...filter, cursor, limit: EXPORT_PAGE_ROWS }),
        ),
      }));
    },
  });
}

export const exportAudit = auditExport("csv", "text/csv", "comma-separated values");
export const exportAuditLines = auditExport("jsonl", "application/jsonl", "JSON Lines");
