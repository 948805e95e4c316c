import type { ConversationRemoval } from "../api/admin/request.ts";
import { operation } from "./operation.ts";

export const removeConversations = operation({
  route: "DELETE /organizations/:id/conversations",
  permission: "conversations:delete",
  summary: "Delete the stored conversations of an organization now, and the kept items of its responses",
  answer: {
    status: 200,
    description: "The number of conversations that were deleted.",
    schema: (s) => s.ConversationRemoval,
  },
  async handle(services, { params: { id: organizationId } }): Promise<ConversationRemoval> {
    const { conversations, responseItems, audit, actor } = services;
    const change = { action: "conversations.remove", organizationId, subjectId: organizationId };
    const removed = await conversations.remove(organizationId, (kept) =>
      audit.record(actor, { ...change, before: { kept } }),
    );
    await responseItems.removeOf(organizationId);
    return { object: "conversation_removal", organization_id: organizationId, removed };
  },
});
