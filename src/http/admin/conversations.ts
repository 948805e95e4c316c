import { Conversation, ConversationRemoval } from "../../api/admin/request.ts";
import { ApiError } from "../../errors.ts";
import { nothingThere } from "./answers.ts";
import { actorOf, adminEndpoint } from "./endpoint.ts";

const showConversation = adminEndpoint({
  method: "GET",
  path: "/requests/:id/conversation",
  access: "operator",
  operationId: "showConversation",
  summary: "Show what was asked and answered, where it is kept; whoever reads it is recorded",
  response: { status: 200, description: "The conversation.", schema: Conversation },
  async handle({ requests, conversations, audit }, call): Promise<Conversation> {
    const request = await requests.find(call.params.id);
    if (request === undefined) throw nothingThere();
    const { organization_id: organizationId, id: subjectId } = request;
    const conversation = await conversations.find(organizationId, subjectId);
    if (conversation === undefined) throw new ApiError("not_found", "Nothing is kept of this request.");
    await audit.record(actorOf(call), { action: "conversation.read", organizationId, subjectId });
    return conversation;
  },
});

const removeConversations = adminEndpoint({
  method: "DELETE",
  path: "/organizations/:id/conversations",
  access: "operator",
  operationId: "removeConversations",
  summary: "Remove now what is kept of an organization's prompts and answers",
  response: { status: 200, description: "How many were removed.", schema: ConversationRemoval },
  async handle({ directory, conversations, audit }, call): Promise<ConversationRemoval> {
    const { id: organizationId } = call.params;
    if ((await directory.organization(organizationId)) === undefined) throw nothingThere();
    // Recorded first: nothing is gone that nobody is known to have removed.
    const before = { kept: await conversations.count(organizationId) };
    const change = { action: "conversations.remove" as const, organizationId, subjectId: organizationId };
    await audit.record(actorOf(call), { ...change, before });
    const removed = await conversations.remove(organizationId);
    return { object: "conversation_removal", organization_id: organizationId, removed };
  },
});

export const conversationEndpoints = [showConversation, removeConversations];
