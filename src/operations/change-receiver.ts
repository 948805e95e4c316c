import { toReceiver } from "../admin/receivers.ts";
import { argument, command, text } from "./command.ts";
import { defined } from "./core.ts";
import { operation } from "./operation.ts";
import { checkReceiver, receiverOutput, updateReceiver } from "./receiver-terms.ts";

/** Beginning again forgets the failures so far, or the next one would disable the receiver again. */
const ENABLED = { disabledAtMs: null, failingSinceMs: null };

export const changeReceiver = operation({
  route: "PATCH /receivers/:id",
  permission: "receivers:write",
  summary: "Change a receiver of warnings, disable it, or enable it again",
  body: (s) => s.ReceiverChange,
  answer: { status: 200, description: "The receiver as it is now.", schema: (s) => s.Receiver },
  async handle(services, { who, params, body: { enabled, kinds, ...terms } }) {
    const row = await updateReceiver(services, who, params.id, {
      action: "receiver.change",
      changeOf(old) {
        const state = enabled === true ? ENABLED : { disabledAtMs: old.disabledAtMs ?? services.clock() };
        const checked = checkReceiver(services, { ...old, ...defined(terms) }, kinds === undefined ? old.kinds : kinds);
        return { ...defined(terms), kinds: checked, ...(enabled !== undefined && state) };
      },
    });
    return toReceiver(row);
  },
  commands: (["enable", "disable"] as const).map((verb) =>
    command({
      usage: `receiver ${verb} <id>`,
      summary: verb === "enable" ? "Send to a disabled receiver again" : "Send nothing more to a receiver",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const state = verb === "enable" ? ENABLED : { disabledAtMs: services.clock() };
        return receiverOutput(
          await updateReceiver(services, null, id, { action: "receiver.change", changeOf: () => state }),
        );
      },
    }),
  ),
});
