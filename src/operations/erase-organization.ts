import { DAY_MS, isoDay, isoTime, monthStart } from "../api/time.ts";
import { timeOfId } from "../credits/request-id.ts";
import { ApiError } from "../errors.ts";
import { argument, facts, text } from "./command.ts";
import { type Core, found, rowRecord, unknownOrganization } from "./core.ts";
import { sharedOperation } from "./operation.ts";

export const eraseOrganization = sharedOperation({
  route: "POST /organizations/:id/erase",
  permission: "organizations:write",
  summary: "Erase a closed organization; its sums stay",
  answer: { status: 200, description: "The organization as it is now.", schema: (s) => s.Organization },
  async handle(core, { params: { id } }) {
    const organization = await core.accounts.organization(id);
    if (organization === undefined) throw unknownOrganization(id);
    if (organization.status !== "closed") throw notDue("Close the organization first.", null);
    if (organization.erasedAtMs === null) {
      await expectDue(core, id);
      await core.erasure.mark(id, core.clock(), rowRecord(core, "organization.erase", { organizationId: id, id }));
    }
    await core.erasure.scrub(id);
    return found(core.directory.organization(id));
  },
  commands: (make) => [
    make.command({
      usage: "org erase <id>",
      flags: { id: argument("<id>", text) },
      text: ({ id, name, status, erased_at }) => facts({ id, name, status, erased: erased_at ?? "no" }),
    }),
  ],
});

/** Rejects with erasure_not_due while requests are stored, or a month with bookings has no statement. */
async function expectDue(core: Core, organizationId: string): Promise<void> {
  const { requestId, bookedAtMs, month } = await core.erasure.lastRows(organizationId);
  if (requestId !== null) {
    const months = await core.requestMonths();
    const kept = "Its requests are stored";
    if (months === undefined) throw notDue(`${kept} for ever: retention.requestMonths is not set.`, null);
    const dueMs = monthStart(timeOfId(requestId) ?? core.clock(), months + 1);
    throw notDue(`${kept} until about ${isoDay(dueMs)} (retention.requestMonths is ${months}).`, dueMs);
  }
  if (bookedAtMs === null || (month !== null && monthStart(bookedAtMs) <= month)) return;
  const dueMs = monthStart(bookedAtMs, 1) + DAY_MS;
  throw notDue(`Its final statement is made on ${isoDay(dueMs)} or soon afterwards.`, dueMs);
}

function notDue(message: string, dueMs: number | null): ApiError {
  return new ApiError("erasure_not_due", message, { fields: { possible_from: isoTime(dueMs) } });
}
