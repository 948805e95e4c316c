import { pageOf, toIdentity } from "../admin/directory.ts";
import { command, jsonOf, tableOf, toggle } from "./command.ts";
import { allRows } from "./core.ts";
import { operation } from "./operation.ts";

export const listIdentities = operation({
  route: "GET /identities",
  permission: "identities:read",
  summary: "List the people and callers whom issuers identified, and those who are blocked",
  query: (s) => s.Strict({ ...s.PageQuery, status: s.Type.Optional(s.Type.Enum(["active", "blocked"])) }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Identity) },
  async handle({ identityRows }, { query: { status }, page: { cursor, limit } }) {
    const rows = await identityRows.identities({ after: cursor, limit: limit + 1, status: status ?? null });
    return pageOf(rows, limit, toIdentity, ({ id }) => id);
  },
  commands: [
    command({
      usage: "identity list",
      flags: { blocked: toggle("--blocked", "only those who are blocked") },
      async run({ identityRows }, { blocked }) {
        const status = blocked ? "blocked" : null;
        const identities = (await allRows((page) => identityRows.identities({ ...page, status }))).map(toIdentity);
        const text = tableOf(identities, {
          ID: ({ id }) => id,
          ISSUER: ({ issuer }) => issuer,
          SUBJECT: ({ subject }) => subject,
          NAME: ({ name }) => name ?? "-",
          STATUS: ({ status, blocked_at }) => (blocked_at === null ? status : `blocked ${blocked_at}`),
        });
        return { json: identities.map(jsonOf), text };
      },
    }),
  ],
});
