import { directoryOver } from "../admin/directory.ts";
import { command, jsonOf, tableOf } from "./command.ts";
import { allPages } from "./core.ts";
import { operation } from "./operation.ts";

export const listOperators = operation({
  route: "GET /operators",
  permission: "operators:read",
  summary: "List operators and auditors, the newest first, without their tokens",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Operator) },
  handle: ({ directory }, { page }) => directory.operators(page),
  commands: [
    command({
      usage: "operator list",
      summary: "List the operators and auditors, the newest first, without their tokens",
      flags: {},
      async run({ store, clock }) {
        const directory = directoryOver({ rows: store.directory, clock });
        const operators = await allPages((page) => directory.operators(page));
        const text = tableOf(operators, {
          ID: ({ id }) => id,
          NAME: ({ name }) => name,
          ROLE: ({ role }) => role,
          TOKEN: ({ prefix }) => `${prefix}…`,
          CREATED: ({ created_at }) => created_at,
          STATUS: ({ status, revoked_at }) => (revoked_at === null ? status : `revoked ${revoked_at}`),
        });
        return { json: operators.map(jsonOf), text };
      },
    }),
  ],
});
