import { makeSigningSecret, toReceiver } from "../admin/receivers.ts";
import type { Administrator } from "../admin/sessions.ts";
import type { ReceiverRow } from "../stores/queries/events.ts";
import { argument, command, duration, text, withDefault } from "./command.ts";
import { type Core, invalidValue } from "./core.ts";
import { operation } from "./operation.ts";
import { RECEIVER_SECRET, receiverOutput, updateReceiver } from "./receiver-terms.ts";

const OVERLAP_SECONDS = 86_400;
/** Each signs every delivery. */
const SECRETS_MAX = 5;

export const rotateReceiverSecret = operation({
  route: "POST /receivers/:id/rotate",
  permission: "receivers:write",
  summary: "Replace the secret of a webhook; deliveries are signed with both until the old one ends",
  body: (s) =>
    s.Strict({
      overlap_seconds: s.Type.Optional(
        s.Type.Integer({
          minimum: 0,
          maximum: 2_592_000,
          default: OVERLAP_SECONDS,
          description: "Time for which the old secret also signs.",
        }),
      ),
    }),
  answer: {
    status: 201,
    description: "The receiver with its new secret.",
    schema: (s) => s.ReceiverWithSecret,
    secret: RECEIVER_SECRET,
  },
  async handle(services, { who, params, body: { overlap_seconds = OVERLAP_SECONDS } }) {
    const { row, secret } = await replaceSecret(services, who, params.id, overlap_seconds * 1000);
    return { ...toReceiver(row), secret };
  },
  commands: [
    command({
      usage: "receiver rotate <id>",
      flags: {
        id: argument("<id>", text),
        overlapMs: withDefault("--overlap <duration>", "time for which the old secret also signs", "1d", duration),
      },
      async run(services, { id, overlapMs }) {
        const { row, secret } = await replaceSecret(services, null, id, overlapMs);
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
  overlapMs: number,
): Promise<{ row: ReceiverRow; secret: string }> {
  const secret = makeSigningSecret(core.random);
  const row = await updateReceiver(core, who, id, {
    action: "receiver.rotate",
    changeOf({ format, secrets }) {
      if (format === "mail") throw invalidValue("id", "a mail address", "a webhook: mail is not signed");
      const endsAtMs = core.clock() + overlapMs;
      const older = secrets.map((old) => ({ ...old, endsAtMs: Math.min(old.endsAtMs ?? endsAtMs, endsAtMs) }));
      const valid = older.filter((old) => old.endsAtMs > core.clock());
      return { secrets: [{ secret, endsAtMs: null }, ...valid].slice(0, SECRETS_MAX) };
    },
  });
  return { row, secret };
}
