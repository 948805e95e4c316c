import {
  Conversation,
  ConversationRemoval,
  RequestDetail,
  RequestPage,
  RequestQuery,
} from "../../api/admin/request.ts";
import { ApiError } from "../../errors.ts";
import {
  actorOf,
  adminEndpoint,
  listOf,
  notFound,
  organizationIn,
  pageOf,
  requireOrganization,
  requireOwn,
  timeOf,
  withApiErrors,
} from "./endpoint.ts";

const listRequests = adminEndpoint({
  method: "GET",
  path: "/requests",
  access: "member",
  operationId: "listRequests",
  summary: "List completion requests, the newest first",
  query: RequestQuery,
  response: { status: 200, description: "A page. It may be short if the search took long.", schema: RequestPage },
  async handle({ requests }, { who, query }) {
    const filter = {
      organizationId: organizationIn(who, query.organization_id),
      tokenId: query.token_id ?? null,
      model: query.model ?? null,
      requestId: query.request_id ?? null,
      status: query.status ?? null,
      fromMs: timeOf("from", query.from),
      toMs: timeOf("to", query.to),
    };
    const page = await withApiErrors(requests.list({ ...filter, ...pageOf(query) }));
    if (who?.role === "operator") return listOf(page);
    return listOf({ ...page, data: page.data.map((request) => ({ ...request, provider_cost: null })) });
  },
});

const showRequest = adminEndpoint({
  method: "GET",
  path: "/requests/:id",
  access: "member",
  operationId: "showRequest",
  summary: "Explain one request: tokens, prices, hold, charge, route, attempts and times",
  response: { status: 200, description: "The request.", schema: RequestDetail },
  async handle({ requests }, { who, params }) {
    const request = await requests.find(params.id);
    if (request === undefined) throw notFound();
    requireOwn(who, request.organization_id);
    if (who?.role === "operator") return request;
    return { ...request, provider_response_id: null, provider_cost: null };
  },
});

const showConversation = adminEndpoint({
  method: "GET",
  path: "/requests/:id/conversation",
  access: "operator",
  operationId: "showConversation",
  summary: "Show a stored conversation; the audit log records who reads it",
  response: { status: 200, description: "The conversation.", schema: Conversation },
  async handle({ requests, conversations, audit }, call): Promise<Conversation> {
    const request = await requests.find(call.params.id);
    if (request === undefined) throw notFound();
    const { organization_id: organizationId, id: subjectId } = request;
    const conversation = await conversations.find(organizationId, subjectId);
    if (conversation === undefined) throw new ApiError("not_found", "No conversation is stored for this request.");
    await audit.record(actorOf(call), { action: "conversation.read", organizationId, subjectId });
    return conversation;
  },
});

const removeConversations = adminEndpoint({
  method: "DELETE",
  path: "/organizations/:id/conversations",
  access: "operator",
  operationId: "removeConversations",
  summary: "Delete the stored conversations of an organization now",
  response: { status: 200, description: "The number of conversations that were deleted.", schema: ConversationRemoval },
  async handle(services, call): Promise<ConversationRemoval> {
    const { conversations, audit } = services;
    const { id: organizationId } = call.params;
    await requireOrganization(services, organizationId);
    const change = { action: "conversations.remove" as const, organizationId, subjectId: organizationId };
    const removed = await conversations.remove(organizationId, (stored) =>
      audit.record(actorOf(call), { ...change, before: { kept: stored } }),
    );
    return { object: "conversation_removal", organization_id: organizationId, removed };
  },
});

export const requestEndpoints = [listRequests, showRequest, showConversation, removeConversations];
