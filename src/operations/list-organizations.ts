import { usageReport } from "../credits/amount.ts";
import { command, tableOf } from "./command.ts";
import { allRows, oldestFirst } from "./core.ts";
import { operation } from "./operation.ts";

export const listOrganizations = operation({
  route: "GET /organizations",
  permission: "organizations:read",
  summary: "List organizations, the newest first; members see their own",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      search: s.Type.Optional(s.Type.String({ maxLength: 200, description: "Part of the name, or an id." })),
      status: s.Type.Optional(s.OrganizationStatus),
    }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Organization) },
  async handle({ directory }, { who, query: { search = null, status = null }, page }) {
    const organizationId = who?.organizationId ?? null;
    if (organizationId === null) return directory.organizations({ search, status, ...page });
    const own = await directory.organization(organizationId);
    return { object: "list", data: own === undefined ? [] : [own], next_cursor: null };
  },
  commands: [
    command({
      usage: "org list",
      summary: "List the organizations, the oldest first",
      flags: {},
      async run({ accounts, freshBalance }) {
        const json = [];
        for (const { id, name, kind } of oldestFirst(await allRows((page) => accounts.organizations(page)))) {
          const { creditsTotal, creditsAvailable } = usageReport(await freshBalance(id));
          json.push({ id, name, kind, creditsTotal, creditsAvailable });
        }
        const text = tableOf(json, {
          ID: ({ id }) => id,
          NAME: ({ name }) => name,
          KIND: ({ kind }) => kind,
          CREDITS: ({ creditsTotal }) => creditsTotal,
          AVAILABLE: ({ creditsAvailable }) => creditsAvailable,
        });
        return { json, text };
      },
    }),
  ],
});
