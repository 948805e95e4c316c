import { makeSigningSecret, toReceiver } from "../admin/receivers.ts";
import type { Administrator } from "../admin/sessions.ts";
import type { ReceiverRow } from "../stores/queries/events.ts";
import { argument, command, text } from "./command.ts";
import { type Core, invalidValue } from "./core.ts";
import { operation } from "./operation.ts";
import { RECEIVER_SECRET, receiverOutput, updateReceiver } from "./receiver-terms.ts";

/** Time for which the old secret also signs, so that receivers can change over without an interruption. */
const OVERLAP_MS = 86_400_000;
/** Each signs every delivery. */
const SECRETS_MAX = 5;

export const rotateReceiverSecret = operation({
  route: "POST /receivers/:id/rotate",
  permission: "receivers:write",
  summary: "Replace the secret of a webhook; deliveries are signed with both for a day",
  answer: {
    status: 201,
    description: "The receiver with its new secret.",
    schema: (s) => s.ReceiverWithSecret,
    secret: RECEIVER_SECRET,
  },
  async handle(services, { who, params }) {
    const { row, secret } = await replaceSecret(services, who, params.id);
    return { ...toReceiver(row), secret };
  },
  commands: [
    command({
      usage: "receiver rotate <id>",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const { row, secret } = await replaceSecret(services, null, id);
        return receiverOutput(row, secret);
      },
    }),
  ],
});

/** Replaces a secret. Rejects with not_found, or invalid_value for a mail address. */
async function replaceSecret(
  core: Core,
  who: Administrator | null,
  id: string,
): Promise<{ row: ReceiverRow; secret: string }> {
  const secret = makeSigningSecret(core.random);
  const row = await updateReceiver(core, who, id, {
    action: "receiver.rotate",
    changeOf({ format, secrets }) {
      if (format === "mail") throw invalidValue("id", "a mail address", "a webhook: mail is not signed");
      const nowMs = core.clock();
      const older = secrets.map((old) => ({ ...old, endsAtMs: old.endsAtMs ?? nowMs + OVERLAP_MS }));
      const valid = older.filter(({ endsAtMs }) => endsAtMs > nowMs);
      return { secrets: [{ secret, endsAtMs: null }, ...valid].slice(0, SECRETS_MAX) };
    },
  });
  return { row, secret };
}
