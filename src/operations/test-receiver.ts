import { deliveryOf, toDelivery } from "../admin/receivers.ts";
import type { Administrator } from "../admin/sessions.ts";
import { eventOf } from "../credits/warnings.ts";
import type { EventDelivery } from "../stores/queries/events.ts";
import { argument, command, jsonOf, text } from "./command.ts";
import type { Core } from "./core.ts";
import { operation } from "./operation.ts";
import { receiverRecord, receiverRow } from "./receiver-terms.ts";

export const testReceiver = operation({
  route: "POST /receivers/:id/test",
  permission: "receivers:write",
  summary: "Send a test event to one receiver",
  answer: { status: 201, description: "The delivery, which waits.", schema: (s) => s.WarningDelivery },
  handle: async (services, { who, params }) => toDelivery(await addTest(services, who, params.id)),
  commands: [
    command({
      usage: "receiver test <id>",
      summary: "Send a test event to one receiver; a running service delivers it",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const delivery = toDelivery(await addTest(services, null, id));
        return { json: jsonOf(delivery), text: `${delivery.id} waits for its delivery.` };
      },
    }),
  ],
});

async function addTest(core: Core, who: Administrator | null, id: string): Promise<EventDelivery> {
  const row = await receiverRow(core, who, id);
  const nowMs = core.clock();
  const { organizationId } = row;
  const event = eventOf("receiver.test", { organizationId, nowMs, period: [id, core.newId()] }, { receiver_id: id });
  const delivery = deliveryOf(event, row, nowMs);
  await core.events.insertDelivery(event, delivery, receiverRecord(core, "receiver.test", row));
  return { delivery, event };
}
