import { auditRow } from "../admin/audit.ts";
import { deliveryOf, makeSigningSecret, toDelivery, toReceiver } from "../admin/receivers.ts";
import type { Administrator } from "../admin/sessions.ts";
import { makeId } from "../admin/token.ts";
import { EVENT_KINDS, type EventKind, RECEIVER_FORMATS } from "../api/admin/event-kinds.ts";
import type { NewReceiver } from "../api/admin/receiver.ts";
import { eventOf } from "../credits/warnings.ts";
import { ApiError, UnknownIdError } from "../errors.ts";
import type { EventDelivery, ReceiverRow } from "../stores/queries/events.ts";
import {
  argument,
  type CommandOutput,
  command,
  facts,
  jsonOf,
  list,
  optional,
  required,
  tableOf,
  text,
  withDefault,
  wordOf,
} from "./command.ts";
import { type Core, checkName, defined, invalidValue, knownOrganization, notFound, shortText } from "./core.ts";
import { operation, organizationIn } from "./operation.ts";

/** The field with the secret of a receiver, and what to do if it was lost. */
const RECEIVER_SECRET = {
  field: "secret",
  hint: ({ id }: Record<string, unknown>) =>
    `The secret of ${id} was in the first response and is not shown again. If it is lost, rotate the secret of ${id}.`,
};

export const listReceivers = operation({
  route: "GET /receivers",
  permission: "receivers:read",
  summary: "List the receivers of warnings, without their secrets",
  query: (s) => s.Strict({ organization_id: s.Type.Optional(s.Id) }),
  answer: { status: 200, description: "All of them, in one page.", schema: (s) => s.PageOf(s.Receiver) },
  async handle({ events }, { who, query }) {
    const rows = await events.receivers(organizationIn(who, query.organization_id));
    return { object: "list", data: rows.map(toReceiver), next_cursor: null };
  },
  commands: [
    command({
      usage: "receiver list",
      flags: { organizationId: optional("--org <id>", "only those of this organization", text) },
      async run(services, { organizationId }) {
        const rows = await services.events.receivers(await knownOrganization(services, organizationId));
        const receivers = rows.map(toReceiver);
        const text = tableOf(receivers, {
          ID: ({ id }) => id,
          NAME: ({ name }) => name,
          ORGANIZATION: ({ organization_id }) => organization_id ?? "all",
          FORMAT: ({ format }) => format,
          TARGET: ({ target }) => target,
          KINDS: ({ kinds }) => kinds?.join(" ") ?? "all",
          STATUS: ({ status }) => status,
        });
        return { json: receivers.map(jsonOf), text };
      },
    }),
  ],
});

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

/** Reads a receiver that a person may see. Rejects with not_found; a command (null) may see all. */
export async function receiverRow({ events }: Core, who: Administrator | null, id: string): Promise<ReceiverRow> {
  const row = await events.receiver(id);
  const limitedTo = who?.organizationId ?? null;
  if (row !== undefined && (limitedTo === null || limitedTo === row.organizationId)) return row;
  throw notFound(new UnknownIdError("receiver", id, "receiver list"));
}

/** Checks the terms of a receiver. Throws invalid_value. */
function checkReceiver(core: Core, row: Pick<ReceiverRow, "name" | "format" | "target">, kinds: string[] | null) {
  checkName(row.name);
  const fault = core.receiverFault(row);
  // The target may contain a secret.
  if (fault !== undefined) throw new ApiError("invalid_value", `Invalid 'target': ${fault}.`, { param: "target" });
  return kindsOf(kinds);
}

function kindsOf(kinds: string[] | null): EventKind[] | null {
  const unknown = kinds?.find((kind) => !(EVENT_KINDS as readonly string[]).includes(kind));
  if (unknown !== undefined) throw invalidValue("kinds", shortText(unknown), `one of: ${EVENT_KINDS.join(", ")}`);
  return kinds as EventKind[] | null;
}

/** Makes the audit record of a change of a receiver. It holds neither the secret nor the path of the target. */
export function receiverRecord(core: Core, action: string, row: ReceiverRow, after?: ReceiverRow) {
  const shown = ({ name, format, target, kinds, disabledAtMs }: ReceiverRow) => {
    const host = format === "mail" ? target : (URL.parse(target)?.host ?? "");
    return { name, format, host, kinds, isDisabled: disabledAtMs !== null };
  };
  const { id: subjectId, organizationId } = row;
  const change = { action, organizationId, subjectId, before: shown(row), ...(after && { after: shown(after) }) };
  return auditRow(core.actor, change, core);
}

/** Changes a receiver, which another request may change at the same time. Rejects with not_found. */
async function updateReceiver(
  core: Core,
  who: Administrator | null,
  id: string,
  { action, changeOf }: { action: string; changeOf: (row: ReceiverRow) => Partial<ReceiverRow> },
): Promise<ReceiverRow> {
  for (;;) {
    const old = await receiverRow(core, who, id);
    const change = changeOf(old);
    const after = { ...old, ...change };
    if (await core.events.changeReceiver(old, change, receiverRecord(core, action, old, after))) return after;
  }
}

/** Reports a receiver, with its secret if it is new. */
function receiverOutput(row: ReceiverRow, secret = ""): CommandOutput {
  const receiver = toReceiver(row);
  const { id, name, format, target, kinds, status } = receiver;
  const text = facts({
    ...{ id, name, format, target, kinds: kinds?.join(", ") ?? "all", status },
    ...(secret !== "" && { secret }),
  });
  return { json: { ...jsonOf(receiver), ...(secret !== "" && { secret }) }, text };
}
