import { deliveryPage, toDelivery } from "../admin/receivers.ts";
import { DELIVERY_STATES } from "../api/admin/event-kinds.ts";
import { UnknownIdError } from "../errors.ts";
import type { EventDelivery } from "../stores/queries/events.ts";
import { argument, optional, text } from "./command.ts";
import { type Core, notFound } from "./core.ts";
import { organizationIn, sharedOperation } from "./operation.ts";
import { receiverRecord, receiverRow } from "./receivers.ts";

export const listDeliveries = sharedOperation({
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
  commands: (make) => [
    make.list({
      usage: "receiver deliveries",
      summary: "List the newest deliveries of warnings",
      flags: { receiver_id: optional("--receiver <id>", "only those of this receiver", text) },
      call: (query) => ({ query }),
      limit: 50,
      columns: {
        ID: ({ id }) => id,
        RECEIVER: ({ receiver_id }) => receiver_id,
        KIND: ({ kind }) => kind,
        CREATED: ({ created_at }) => created_at,
        STATE: ({ state }) => state,
        ATTEMPTS: ({ attempts }) => attempts,
        RESULT: ({ result }) => result ?? "-",
      },
    }),
  ],
});

export const replayDelivery = sharedOperation({
  route: "POST /deliveries/:id/replay",
  permission: "receivers:write",
  summary: "Deliver an event again, with the same id",
  answer: { status: 200, description: "The delivery, which waits.", schema: (s) => s.WarningDelivery },
  async handle(core, { who, params: { id } }) {
    const { delivery } = await deliveryRow(core, id);
    const receiver = await receiverRow(core, who, delivery.receiverId);
    await core.events.replayDelivery(id, core.clock(), receiverRecord(core, "receiver.replay", receiver));
    return toDelivery(await deliveryRow(core, id));
  },
  commands: (make) => [
    make.command({
      usage: "receiver replay <id>",
      summary: "Deliver an event again; the id is that of a delivery",
      flags: { id: argument("<id>", text) },
      text: ({ id }) => `${id} waits for its delivery.`,
    }),
  ],
});

async function deliveryRow({ events }: Core, id: string): Promise<EventDelivery> {
  const found = await events.delivery(id);
  if (found === undefined) throw notFound(new UnknownIdError("delivery", id, "receiver deliveries"));
  return found;
}
