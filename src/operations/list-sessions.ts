import { directoryOver } from "../admin/directory.ts";
import { command, jsonOf, tableOf } from "./command.ts";
import { allPages } from "./core.ts";
import { operation } from "./operation.ts";

export const listSessions = operation({
  route: "GET /sessions",
  permission: "sessions:read",
  summary: "List the open sessions of the console, the newest first",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.OpenSession) },
  handle: ({ directory }, { page }) => directory.sessions(page),
  commands: [
    command({
      usage: "session list",
      flags: {},
      async run({ store, clock }) {
        const directory = directoryOver({ rows: store.directory, clock });
        const sessions = await allPages((page) => directory.sessions(page));
        const text = tableOf(sessions, {
          ID: ({ id }) => id,
          ROLE: ({ role }) => role,
          NAME: ({ holder }) => holder.name,
          ORGANIZATION: ({ organization_id }) => organization_id,
          "LAST SEEN": ({ last_seen_at }) => last_seen_at,
          EXPIRES: ({ expires_at }) => expires_at,
        });
        return { json: sessions.map(jsonOf), text };
      },
    }),
  ],
});
