import { cursorFor, pageOf, positionOf } from "../admin/directory.ts";
import { deliveryOf, makeSigningSecret, toDelivery, toReceiver, withShortTarget } from "../admin/receivers.ts";
import type { Administrator } from "../admin/sessions.ts";
import { makeId } from "../admin/token.ts";
import { DELIVERY_STATES, EVENT_KINDS, type EventKind, RECEIVER_FORMATS } from "../api/admin/event-kinds.ts";
import type { Receiver } from "../api/admin/receiver.ts";
import { permits } from "../api/admin/roles.ts";
import { pick } from "../api/json.ts";
import { eventOf } from "../credits/warnings.ts";
import { ApiError, UnknownIdError } from "../errors.ts";
import type { EventDelivery, ReceiverRow } from "../stores/queries/events.ts";
import { argument, facts, list, optional, required, text, withDefault, wordOf } from "./command.ts";
import {
  type Core,
  checkName,
  defined,
  found,
  invalidValue,
  knownOrganization,
  notFound,
  rowRecord,
  shortText,
  wholeList,
} from "./core.ts";
import { organizationIn, sharedOperation } from "./operation.ts";

const RECEIVER_SECRET = {
  field: "secret",
  hint: ({ id }: Record<string, unknown>) =>
    `The secret of ${id} was in the first response and is not shown again. If it is lost, rotate the secret of ${id}.`,
};

export const listReceivers = sharedOperation({
  route: "GET /receivers",
  permission: "receivers:read",
  summary: "List the receivers of warnings, without their secrets",
  query: (s) => s.Strict({ organization_id: s.Type.Optional(s.Id) }),
  answer: { status: 200, description: "All of them, in one page.", schema: (s) => s.PageOf(s.Receiver) },
  async handle({ events }, { who, query }) {
    const rows = (await events.receivers(organizationIn(who, query.organization_id))).map(toReceiver);
    return wholeList(who === null || permits(who.role, "receivers:write") ? rows : rows.map(withShortTarget));
  },
  commands: (make) => [
    make.list({
      usage: "receiver list",
      flags: { organization_id: optional("--org <id>", "only those of this organization", text) },
      columns: {
        ID: ({ id }) => id,
        NAME: ({ name }) => name,
        ORGANIZATION: ({ organization_id }) => organization_id ?? "all",
        FORMAT: ({ format }) => format,
        TARGET: ({ target }) => target,
        KINDS: ({ kinds }) => kinds?.join(" ") ?? "all",
        STATUS: ({ status }) => status,
      },
    }),
  ],
});

/** In an organization, or for the whole service: an owner chooses whom the service sends requests and mails. */
const RECEIVERS_MAX = 20;

export const createReceiver = sharedOperation({
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
  async handle(core, { who, body: { organization_id, name, format, target, kinds = null } }) {
    const organizationId = await knownOrganization(core, organizationIn(who, organization_id ?? undefined));
    await checkReceiver(core, { organizationId, name, format, target });
    const secret = format === "mail" ? "" : makeSigningSecret(core.random);
    const row: ReceiverRow = {
      ...{ id: makeId("rcv", core.random), organizationId, name, format, target, kinds: kindsOf(kinds) },
      secrets: secret === "" ? [] : [{ secret, endsAtMs: null }],
      ...{ createdAtMs: core.clock(), failingSinceMs: null, disabledAtMs: null },
    };
    if (await core.events.insertReceiver(row, receiverRecord(core, "receiver.create", row), RECEIVERS_MAX)) {
      return { ...toReceiver(row), secret };
    }
    throw new ApiError("invalid_value", `There are ${RECEIVERS_MAX} receivers already, which is the maximum.`);
  },
  commands: (make) => [
    make.command({
      usage: "receiver create",
      summary: "Create a webhook or a mail address that receives warnings",
      flags: {
        name: required("--name <name>", "name of the receiver"),
        target: required("--target <address>", "https:// address, or mail address"),
        format: withDefault("--format <format>", RECEIVER_FORMATS.join(", "), "webhook", wordOf(RECEIVER_FORMATS)),
        organization_id: optional("--org <id>", "only events of this organization (default: all)", text),
        kinds: list("--kind <kind...>", "only these kinds of events, such as credits.low budget.used (default: all)"),
      },
      text: receiverText,
    }),
  ],
});

export const changeReceiver = sharedOperation({
  route: "PATCH /receivers/:id",
  permission: "receivers:write",
  summary: "Change a receiver of warnings, disable it, or enable it again",
  body: (s) => s.ReceiverChange,
  answer: { status: 200, description: "The receiver as it is now.", schema: (s) => s.Receiver },
  async handle(core, { who, params, body: { enabled, kinds, ...terms } }) {
    const row = await updateReceiver(core, who, params.id, "receiver.change", async (old) => {
      // A receiver whose target is refused by now can still be disabled.
      if (Object.keys(terms).length > 0) await checkReceiver(core, { ...old, ...defined(terms) });
      return {
        ...defined(terms),
        ...(kinds !== undefined && { kinds: kindsOf(kinds) }),
        // Beginning again forgets the failures so far, or the next one would disable the receiver again.
        ...(enabled === true && { disabledAtMs: null, failingSinceMs: null }),
        ...(enabled === false && { disabledAtMs: old.disabledAtMs ?? core.clock() }),
      };
    });
    return toReceiver(row);
  },
  commands: (make) =>
    (["enable", "disable"] as const).map((verb) =>
      make.command({
        usage: `receiver ${verb} <id>`,
        summary: verb === "enable" ? "Send to a disabled receiver again" : "Send nothing more to a receiver",
        flags: { id: argument("<id>", text) },
        call: (params) => ({ params, body: { enabled: verb === "enable" } }),
        text: receiverText,
      }),
    ),
});

export const deleteReceiver = sharedOperation({
  route: "DELETE /receivers/:id",
  permission: "receivers:write",
  summary: "Delete a receiver of warnings with its deliveries",
  answer: { status: 204, description: "The receiver is deleted." },
  async handle(core, { who, params: { id } }) {
    const row = await receiverRow(core, who, id);
    // False: another request has deleted it meanwhile.
    await core.events.deleteReceiver(id, receiverRecord(core, "receiver.delete", row));
  },
  commands: (make) => [
    make.command({
      usage: "receiver delete <id>",
      flags: { id: argument("<id>", text) },
      json: (_, { id }) => ({ id, deleted: true }),
      text: (_, { id }) => `${id} is deleted.`,
    }),
  ],
});

/** Time for which the old secret also signs, so that receivers can change over without an interruption. */
const OVERLAP_MS = 86_400_000;
/** Each signs every delivery. */
const SECRETS_MAX = 5;

export const rotateReceiverSecret = sharedOperation({
  route: "POST /receivers/:id/rotate",
  permission: "receivers:write",
  summary: "Replace the secret of a webhook; deliveries are signed with both for a day",
  answer: {
    status: 201,
    description: "The receiver with its new secret.",
    schema: (s) => s.ReceiverWithSecret,
    secret: RECEIVER_SECRET,
  },
  async handle(core, { who, params }) {
    const secret = makeSigningSecret(core.random);
    const row = await updateReceiver(core, who, params.id, "receiver.rotate", async ({ format, secrets }) => {
      if (format === "mail") throw invalidValue("id", "a mail address", "a webhook: mail is not signed");
      const nowMs = core.clock();
      const older = secrets.map((old) => ({ ...old, endsAtMs: old.endsAtMs ?? nowMs + OVERLAP_MS }));
      const valid = older.filter(({ endsAtMs }) => endsAtMs > nowMs);
      return { secrets: [{ secret, endsAtMs: null }, ...valid].slice(0, SECRETS_MAX) };
    });
    return { ...toReceiver(row), secret };
  },
  commands: (make) => [
    make.command({ usage: "receiver rotate <id>", flags: { id: argument("<id>", text) }, text: receiverText }),
  ],
});

export const testReceiver = sharedOperation({
  route: "POST /receivers/:id/test",
  permission: "receivers:write",
  summary: "Send a test event to one receiver",
  answer: { status: 201, description: "The delivery, which waits.", schema: (s) => s.WarningDelivery },
  async handle(core, { who, params: { id } }) {
    const row = enabled(await receiverRow(core, who, id));
    const nowMs = core.clock();
    const { organizationId } = row;
    const event = eventOf("receiver.test", { organizationId, nowMs, period: [id, core.newId()] }, { receiver_id: id });
    const delivery = deliveryOf(event, row, nowMs);
    await core.events.insertDelivery(event, delivery, receiverRecord(core, "receiver.test", row));
    return toDelivery({ delivery, event });
  },
  commands: (make) => [
    make.command({
      usage: "receiver test <id>",
      summary: "Send a test event to one receiver; a running service delivers it",
      flags: { id: argument("<id>", text) },
      text: ({ id }) => `${id} waits for its delivery.`,
    }),
  ],
});

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
  async handle({ events }, { who, query, page: { cursor, limit } }) {
    const { organization_id, receiver_id: receiverId = null, state = null } = query;
    const filter = { organizationId: organizationIn(who, organization_id), receiverId, state };
    const rows = await events.deliveries({ ...filter, before: positionOf(cursor), limit: limit + 1 });
    return pageOf(rows, limit, toDelivery, ({ delivery }) => cursorFor(delivery));
  },
  commands: (make) => [
    make.list({
      usage: "receiver deliveries",
      summary: "List the newest deliveries of warnings",
      flags: { receiver_id: optional("--receiver <id>", "only those of this receiver", text) },
      limit: 50,
      columns: {
        ID: ({ id }) => id,
        RECEIVER: ({ receiver_id }) => receiver_id,
        ORGANIZATION: ({ organization_id }) => organization_id ?? "-",
        KIND: ({ kind }) => kind,
        CREATED: ({ created_at }) => created_at,
        STATE: ({ state }) => state,
        ATTEMPTS: ({ attempts }) => attempts,
        RESULT: ({ result }) => result ?? "-",
        TEXT: ({ text }) => text,
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
    const contacts = await core.events.contacts(delivery.receiverId);
    const receiver = enabled(await receiverRow(core, who, delivery.receiverId, contacts));
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

function deliveryRow({ events }: Core, id: string): Promise<EventDelivery> {
  return found(events.delivery(id), { kind: "delivery", id, listedBy: "receiver deliveries" });
}

/** Reads a receiver that a person may see. Rejects with not_found; a command (null) may see all. */
async function receiverRow({ events }: Core, who: Administrator | null, id: string, contacts?: ReceiverRow) {
  const row = contacts ?? (await events.receiver(id));
  const limitedTo = who?.organizationId ?? null;
  if (row !== undefined && (limitedTo === null || limitedTo === row.organizationId)) return row;
  throw notFound(new UnknownIdError("receiver", id, "receiver list"));
}

/** Returns a receiver if it is enabled: what is to be sent to a disabled one would wait. Throws invalid_value otherwise. */
function enabled(row: ReceiverRow): ReceiverRow {
  if (row.disabledAtMs === null) return row;
  throw invalidValue("id", "a disabled receiver", "an enabled one: enable it first");
}

async function checkReceiver(core: Core, row: Pick<ReceiverRow, "organizationId" | "name" | "format" | "target">) {
  checkName(row.name);
  const fault = await core.receiverFault(row);
  // The target may contain a secret.
  if (fault !== undefined) throw new ApiError("invalid_value", `Invalid 'target': ${fault}.`, { param: "target" });
}

function kindsOf(kinds: string[] | null): EventKind[] | null {
  const unknown = kinds?.find((kind) => !(EVENT_KINDS as readonly string[]).includes(kind));
  if (unknown !== undefined) throw invalidValue("kinds", shortText(unknown), `one of: ${EVENT_KINDS.join(", ")}`);
  return kinds as EventKind[] | null;
}

/** Makes the audit record of a change of a receiver. It holds neither the secret nor the path of the target. */
function receiverRecord(core: Core, action: string, row: ReceiverRow, after?: ReceiverRow) {
  const shown = ({ name, format, target, kinds, disabledAtMs }: ReceiverRow) => {
    const host = format === "mail" ? target : (URL.parse(target)?.host ?? "");
    return { name, format, host, kinds, isDisabled: disabledAtMs !== null };
  };
  return rowRecord(core, action, row, { before: shown(row), ...(after && { after: shown(after) }) });
}

/** Changes a receiver, which another request may change at the same time. Rejects with not_found. */
async function updateReceiver(
  core: Core,
  who: Administrator | null,
  id: string,
  action: string,
  changeOf: (row: ReceiverRow) => Promise<Partial<ReceiverRow>>,
): Promise<ReceiverRow> {
  for (;;) {
    const old = await receiverRow(core, who, id);
    const change = await changeOf(old);
    const after = { ...old, ...change };
    if (await core.events.changeReceiver(old, change, receiverRecord(core, action, old, after))) return after;
  }
}

function receiverText({ secret = "", kinds, status, ...receiver }: Receiver & { secret?: string }): string {
  const named = { ...pick(receiver, ["id", "name", "format", "target"]), kinds: kinds?.join(", ") ?? "all", status };
  return facts({ ...named, ...(secret !== "" && { secret }) });
}
