import { makeSigningSecret, toReceiver } from "../admin/receivers.ts";
import { makeId } from "../admin/token.ts";
import { RECEIVER_FORMATS } from "../api/admin/event-kinds.ts";
import type { NewReceiver } from "../api/admin/receiver.ts";
import { ApiError } from "../errors.ts";
import type { ReceiverRow } from "../stores/queries/events.ts";
import { command, list, optional, required, text, withDefault, wordOf } from "./command.ts";
import { type Core, knownOrganization } from "./core.ts";
import { operation, organizationIn } from "./operation.ts";
import { checkReceiver, RECEIVER_SECRET, receiverOutput, receiverRecord } from "./receiver-terms.ts";

/** In an organization, or for the whole service: an owner chooses whom the service sends requests and mails. */
const RECEIVERS_MAX = 20;

export const createReceiver = operation({
  route: "POST /receivers",
  permission: "receivers:write",
  summary: "Create a webhook or a mail address that receives warnings; only this response contains its secret",
  body: (s) => s.NewReceiver,
  answer: {
    status: 201,
    description: "The receiver with its secret.",
    schema: (s) => s.ReceiverWithSecret,
    secret: RECEIVER_SECRET,
  },
  async handle(services, { who, body }) {
    const organizationId = organizationIn(who, body.organization_id ?? undefined);
    const { row, secret } = await addReceiver(services, { ...body, organization_id: organizationId });
    return { ...toReceiver(row), secret };
  },
  commands: [
    command({
      usage: "receiver create",
      summary: "Create a webhook or a mail address that receives warnings",
      flags: {
        name: required("--name <name>", "name of the receiver"),
        target: required("--target <address>", "https:// address, or mail address"),
        format: withDefault("--format <format>", RECEIVER_FORMATS.join(", "), "webhook", wordOf(RECEIVER_FORMATS)),
        organization_id: optional("--org <id>", "only events of this organization (default: all)", text),
        kinds: list("--kind <kind...>", "only these kinds of events, such as credits.low budget.used (default: all)"),
      },
      async run(services, draft) {
        const { row, secret } = await addReceiver(services, draft);
        return receiverOutput(row, secret);
      },
    }),
  ],
});

/** Creates a receiver. Rejects with not_found or invalid_value. */
async function addReceiver(core: Core, draft: NewReceiver): Promise<{ row: ReceiverRow; secret: string }> {
  const { name, format, target, kinds = null } = draft;
  const organizationId = await knownOrganization(core, draft.organization_id ?? null);
  const others = (await core.events.receivers(organizationId)).filter((row) => row.organizationId === organizationId);
  if (others.length >= RECEIVERS_MAX) {
    throw new ApiError("invalid_value", `There are ${RECEIVERS_MAX} receivers already, which is the maximum.`);
  }
  const secret = format === "mail" ? "" : makeSigningSecret(core.random);
  const row: ReceiverRow = {
    ...{ id: makeId("rcv", core.random), organizationId, name, format, target },
    kinds: checkReceiver(core, draft, kinds),
    secrets: secret === "" ? [] : [{ secret, endsAtMs: null }],
    ...{ createdAtMs: core.clock(), failingSinceMs: null, disabledAtMs: null },
  };
  await core.events.insertReceiver(row, receiverRecord(core, "receiver.create", row));
  return { row, secret };
}
