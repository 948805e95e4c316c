import { toReceiver } from "../admin/receivers.ts";
import { command, jsonOf, optional, tableOf, text } from "./command.ts";
import { knownOrganization } from "./core.ts";
import { operation, organizationIn } from "./operation.ts";

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
