import { pageOf } from "../admin/directory.ts";
import type { Allowance } from "../api/admin/credits.ts";
import { isoTime } from "../api/time.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { command, optional, tableOf, text } from "./command.ts";
import { allRows, knownOrganization } from "./core.ts";
import { operation } from "./operation.ts";

export const listAllowances = operation({
  route: "GET /organizations/:id/allowances",
  permission: "credits:read",
  summary: "List an organization's allowances, including those that have ended",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Allowance) },
  async handle(services, { params: { id: organizationId }, page: { cursor: after, limit } }) {
    const rows = await services.allowances.list({ organizationId, after, limit: limit + 1 });
    return pageOf(rows, limit, allowanceAnswer, ({ id }) => id);
  },
  commands: [
    command({
      usage: "credits allowance list",
      summary: "List the allowances, including those that have ended",
      flags: { organizationId: optional("--org <id>", "only those of this organization", text) },
      async run(services, input) {
        const organizationId = await knownOrganization(services, input.organizationId);
        const rows = await allRows((page) => services.allowances.list({ organizationId, ...page }));
        const json = rows.map(allowanceJson);
        const text = tableOf(json, {
          ID: ({ id }) => id,
          ORGANIZATION: ({ organizationId }) => organizationId,
          MONTHLY: ({ monthly }) => monthly,
          REMAINDER: ({ lapses }) => (lapses ? "expires" : "stays"),
          NEXT: ({ nextAt, endedAt }) => (endedAt === null ? nextAt : `ended ${endedAt}`),
        });
        return { json, text };
      },
    }),
  ],
});

export function allowanceAnswer(row: AllowanceRow): Allowance {
  const { id, lapses, reference } = row;
  return {
    object: "allowance",
    id,
    organization_id: row.organizationId,
    amount: creditsFromMicro(row.amount),
    lapses,
    reference,
    begins_at: isoTime(row.anchorAtMs),
    next_at: isoTime(row.nextAtMs),
    ended_at: isoTime(row.endedAtMs),
    created_at: isoTime(row.createdAtMs),
  };
}

/** Formats an allowance as commands do. */
export function allowanceJson(row: AllowanceRow) {
  const { id, organization_id, amount, lapses, reference, begins_at, next_at, ended_at } = allowanceAnswer(row);
  const times = { from: begins_at, nextAt: next_at, endedAt: ended_at };
  return { id, organizationId: organization_id, monthly: amount, lapses, reference, ...times };
}
