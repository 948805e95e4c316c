import { auditRow } from "../admin/audit.ts";
import { toReceiver } from "../admin/receivers.ts";
import type { Administrator } from "../admin/sessions.ts";
import { EVENT_KINDS, type EventKind } from "../api/admin/event-kinds.ts";
import { ApiError, UnknownIdError } from "../errors.ts";
import type { ReceiverRow } from "../stores/queries/events.ts";
import { type CommandOutput, facts, jsonOf } from "./command.ts";
import { type Core, checkName, invalidValue, notFound, shortText } from "./core.ts";

/** The field with the secret of a receiver, and what to do if it was lost. */
export const RECEIVER_SECRET = {
  field: "secret",
  hint: ({ id }: Record<string, unknown>) =>
    `The secret of ${id} was in the first response and is not shown again. If it is lost, rotate the secret of ${id}.`,
};

/** Reads a receiver that a person may see. Rejects with not_found; a command (null) may see all. */
export async function receiverRow({ events }: Core, who: Administrator | null, id: string): Promise<ReceiverRow> {
  const row = await events.receiver(id);
  const limitedTo = who?.organizationId ?? null;
  if (row !== undefined && (limitedTo === null || limitedTo === row.organizationId)) return row;
  throw notFound(new UnknownIdError("receiver", id, "receiver list"));
}

/** Checks the terms of a receiver. Throws invalid_value. */
export function checkReceiver(
  core: Core,
  row: Pick<ReceiverRow, "name" | "format" | "target">,
  kinds: string[] | null,
) {
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
export async function updateReceiver(
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
export function receiverOutput(row: ReceiverRow, secret = ""): CommandOutput {
  const receiver = toReceiver(row);
  const { id, name, format, target, kinds, status } = receiver;
  const text = facts({
    ...{ id, name, format, target, kinds: kinds?.join(", ") ?? "all", status },
    ...(secret !== "" && { secret }),
  });
  return { json: { ...jsonOf(receiver), ...(secret !== "" && { secret }) }, text };
}
