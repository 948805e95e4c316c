import { ApiError } from "../errors.ts";
import { found } from "./core.ts";
import { operation } from "./operation.ts";

export const showConversation = operation({
  route: "GET /requests/:id/conversation",
  permission: "conversations:read",
  summary: "Show a stored conversation; the audit log records who reads it",
  answer: { status: 200, description: "The conversation.", schema: (s) => s.Conversation },
  async handle(services, { params }) {
    const { organization_id: organizationId, id: subjectId } = await found(services.requests.find(params.id));
    const conversation = await services.conversations.find(organizationId, subjectId);
    if (conversation === undefined) throw new ApiError("not_found", "No conversation is stored for this request.");
    await services.audit.record(services.actor, { action: "conversation.read", organizationId, subjectId });
    return conversation;
  },
});
