import { deliveryPage } from "../admin/receivers.ts";
import { DELIVERY_STATES } from "../api/admin/event-kinds.ts";
import { command, jsonOf, optional, tableOf, text } from "./command.ts";
import { operation, organizationIn } from "./operation.ts";

export const listDeliveries = operation({
  route: "GET /deliveries",
  permission: "receivers:read",
  summary: "List deliveries of warnings, the newest first",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      organization_id: s.Type.Optional(s.Id),
      receiver_id: s.Type.Optional(s.Id),
      state: s.Type.Optional(s.Type.Enum([...DELIVERY_STATES])),
    }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.WarningDelivery) },
  handle({ events }, { who, query, page }) {
    const { organization_id, receiver_id: receiverId = null, state = null } = query;
    return deliveryPage(events, { organizationId: organizationIn(who, organization_id), receiverId, state, ...page });
  },
  commands: [
    command({
      usage: "receiver deliveries",
      summary: "List the newest deliveries of warnings",
      flags: { receiverId: optional("--receiver <id>", "only those of this receiver", text) },
      async run({ events }, { receiverId }) {
        const filter = { organizationId: null, receiverId, state: null };
        const { data } = await deliveryPage(events, { ...filter, cursor: null, limit: 50 });
        const text = tableOf(data, {
          ID: ({ id }) => id,
          RECEIVER: ({ receiver_id }) => receiver_id,
          KIND: ({ kind }) => kind,
          CREATED: ({ created_at }) => created_at,
          STATE: ({ state }) => state,
          ATTEMPTS: ({ attempts }) => attempts,
          RESULT: ({ result }) => result ?? "-",
        });
        return { json: data.map(jsonOf), text };
      },
    }),
  ],
});
