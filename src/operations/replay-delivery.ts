import { toDelivery } from "../admin/receivers.ts";
import type { Administrator } from "../admin/sessions.ts";
import type { WarningDelivery } from "../api/admin/receiver.ts";
import { UnknownIdError } from "../errors.ts";
import type { EventDelivery } from "../stores/queries/events.ts";
import { argument, command, jsonOf, text } from "./command.ts";
import { type Core, notFound } from "./core.ts";
import { operation } from "./operation.ts";
import { receiverRecord, receiverRow } from "./receiver-terms.ts";

export const replayDelivery = operation({
  route: "POST /deliveries/:id/replay",
  permission: "receivers:write",
  summary: "Deliver an event again, with the same id",
  answer: { status: 200, description: "The delivery, which waits.", schema: (s) => s.WarningDelivery },
  handle: (services, { who, params }) => replay(services, who, params.id),
  commands: [
    command({
      usage: "receiver replay <id>",
      summary: "Deliver an event again; the id is that of a delivery",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        return { json: jsonOf(await replay(services, null, id)), text: `${id} waits for its delivery.` };
      },
    }),
  ],
});

async function replay(core: Core, who: Administrator | null, id: string): Promise<WarningDelivery> {
  const { delivery } = await deliveryRow(core, id);
  const receiver = await receiverRow(core, who, delivery.receiverId);
  await core.events.replayDelivery(id, core.clock(), receiverRecord(core, "receiver.replay", receiver));
  return toDelivery(await deliveryRow(core, id));
}

async function deliveryRow({ events }: Core, id: string): Promise<EventDelivery> {
  const found = await events.delivery(id);
  if (found === undefined) throw notFound(new UnknownIdError("delivery", id, "receiver deliveries"));
  return found;
}
