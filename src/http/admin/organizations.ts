import {
  NewOrganization,
  Organization,
  OrganizationChange,
  OrganizationPage,
  OrganizationQuery,
} from "../../api/admin/organization.ts";
import {
  type AdminServices,
  actorOf,
  adminEndpoint,
  limitSettingsOf,
  listOf,
  notFound,
  pageOf,
  requireOwn,
  withApiErrors,
} from "./endpoint.ts";

const listOrganizations = adminEndpoint({
  method: "GET",
  path: "/organizations",
  access: "member",
  operationId: "listOrganizations",
  summary: "List organizations, the newest first; members see their own",
  query: OrganizationQuery,
  response: { status: 200, description: "A page.", schema: OrganizationPage },
  async handle({ directory }, { who, query }) {
    if (who?.role === "member") {
      const own = await directory.organization(who.token.organizationId);
      return listOf({ data: own === undefined ? [] : [own], nextCursor: null });
    }
    const filter = { search: query.search ?? null, status: query.status ?? null };
    return listOf(await withApiErrors(directory.organizations({ ...filter, ...pageOf(query) })));
  },
});

const createOrganization = adminEndpoint({
  method: "POST",
  path: "/organizations",
  access: "operator",
  operationId: "createOrganization",
  summary: "Create an organization",
  body: NewOrganization,
  response: { status: 201, description: "The organization.", schema: Organization },
  async handle(services, call) {
    const { name, limits } = call.body;
    const accounts = services.accounts.as(actorOf(call));
    const { id } = await withApiErrors(accounts.createOrganization(name, limitSettingsOf(limits)));
    return show(services, id);
  },
});

const showOrganization = adminEndpoint({
  method: "GET",
  path: "/organizations/:id",
  access: "member",
  operationId: "showOrganization",
  summary: "Show an organization",
  response: { status: 200, description: "The organization.", schema: Organization },
  async handle(services, { who, params }) {
    requireOwn(who, params.id);
    return show(services, params.id);
  },
});

const changeOrganization = adminEndpoint({
  method: "PATCH",
  path: "/organizations/:id",
  access: "operator",
  operationId: "changeOrganization",
  summary:
    "Change an organization's name or limits, pause or resume it, turn the storage of its conversations on or off",
  body: OrganizationChange,
  response: { status: 200, description: "The organization as it is now.", schema: Organization },
  async handle(services, call) {
    const { name, status, limits, keeps_conversations, pauses_allowances } = call.body;
    const change = {
      ...(name !== undefined && { name }),
      ...(status !== undefined && { status }),
      ...(pauses_allowances !== undefined && { pausesAllowances: pauses_allowances }),
      ...(limits !== undefined && { limits: limitSettingsOf(limits) }),
      ...(keeps_conversations !== undefined && { keepsConversations: keeps_conversations }),
    };
    const accounts = services.accounts.as(actorOf(call));
    const changed = await withApiErrors(accounts.changeOrganization(call.params.id, change));
    if (changed === undefined) throw notFound();
    return show(services, changed.id);
  },
});

export const organizationEndpoints = [listOrganizations, createOrganization, showOrganization, changeOrganization];

async function show({ directory }: AdminServices, id: string): Promise<Organization> {
  const organization = await directory.organization(id);
  if (organization === undefined) throw notFound();
  return organization;
}
