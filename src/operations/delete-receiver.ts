import type { Administrator } from "../admin/sessions.ts";
import { argument, command, text } from "./command.ts";
import type { Core } from "./core.ts";
import { operation } from "./operation.ts";
import { receiverRecord, receiverRow } from "./receiver-terms.ts";

export const deleteReceiver = operation({
  route: "DELETE /receivers/:id",
  permission: "receivers:write",
  summary: "Delete a receiver of warnings with its deliveries",
  answer: { status: 204, description: "The receiver is deleted." },
  handle: (services, { who, params }) => removeReceiver(services, who, params.id),
  commands: [
    command({
      usage: "receiver delete <id>",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        await removeReceiver(services, null, id);
        return { json: { id, deleted: true }, text: `${id} is deleted.` };
      },
    }),
  ],
});

async function removeReceiver(core: Core, who: Administrator | null, id: string): Promise<void> {
  const row = await receiverRow(core, who, id);
  // False: another request has deleted it meanwhile.
  await core.events.deleteReceiver(id, receiverRecord(core, "receiver.delete", row));
}
