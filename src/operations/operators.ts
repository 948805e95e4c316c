import { auditRow } from "../admin/audit.ts";
import { directoryOver, toOperator } from "../admin/directory.ts";
import { insertOperator, type NewOperatorToken } from "../admin/operators.ts";
import { SERVICE_ROLES, type ServiceRole } from "../api/admin/roles.ts";
import { ApiError, UnknownIdError } from "../errors.ts";
import type { OperatorRow } from "../stores/queries/admin.ts";
import { argument, command, facts, jsonOf, tableOf, text, withDefault, wordOf } from "./command.ts";
import { allPages, type Core, checkName, notFound, shortText } from "./core.ts";
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

export const createOperator = operation({
  route: "POST /operators",
  permission: "operators:write",
  summary: "Create an operator or an auditor with a token of their own; only this response contains it",
  body: (s) => s.NewOperator,
  answer: {
    status: 201,
    description: "The operator with their token.",
    schema: (s) => s.OperatorWithSecret,
    secret: {
      field: "secret",
      hint: ({ id }) =>
        `The token of ${id} was shown in the first response and is not stored. If it is lost, revoke ${id} and create the operator again.`,
    },
  },
  async handle(services, { who, body: { name, role } }) {
    if (who !== null && who.person !== null) {
      const message = "People of an identity provider create no operators: the tokens would outlive their own role.";
      throw new ApiError("insufficient_role", message);
    }
    const { row, token } = await addOperator(services, name, role);
    return { ...toOperator(row), secret: token };
  },
  commands: [
    command({
      usage: "operator create <name>",
      summary: "Create an operator or an auditor with a token of their own, shown once",
      flags: {
        name: argument("<name>", text),
        role: withDefault("--role <role>", SERVICE_ROLES.join(" or "), "operator", wordOf(SERVICE_ROLES)),
      },
      async run(services, { name, role }) {
        const { row, token } = await addOperator(services, name, role);
        return { json: { id: row.id, name, role, token }, text: facts({ id: row.id, name, role, token }) };
      },
    }),
  ],
});

/** Creates an operator. Rejects with invalid_value, also for the name of another operator who is not revoked. */
async function addOperator(core: Core, name: string, role: ServiceRole): Promise<NewOperatorToken> {
  checkName(name);
  const made = await insertOperator(core, core.actor, { name, role });
  if (made !== undefined) return made;
  const message = `There is an operator named ${shortText(name)} already. Names are unique among those who are not revoked.`;
  throw new ApiError("invalid_value", message, { param: "name" });
}

export const revokeOperator = operation({
  route: "DELETE /operators/:id",
  permission: "operators:write",
  summary: "Revoke an operator: the token and all sessions end at once; a repetition changes nothing",
  answer: { status: 200, description: "The operator as they are now.", schema: (s) => s.Operator },
  handle: async (services, { params }) => toOperator(await endOperator(services, params.id)),
  commands: [
    command({
      usage: "operator revoke <id>",
      summary: "Revoke an operator: the token and all sessions end at once",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const operator = toOperator(await endOperator(services, id));
        const text = `${operator.name} (${id}) is revoked since ${operator.revoked_at}.`;
        return { json: jsonOf(operator), text };
      },
    }),
  ],
});

async function endOperator(core: Core, id: string): Promise<OperatorRow> {
  const row = await operatorRow(core, id);
  if (row.revokedAtMs !== null) return row;
  const before = { name: row.name, role: row.role, prefix: row.prefix };
  const change = { action: "operator.revoke", organizationId: null, subjectId: id, before };
  await core.admin.revokeOperator(id, core.clock(), auditRow(core.actor, change, core));
  return operatorRow(core, id);
}

async function operatorRow({ admin }: Core, id: string): Promise<OperatorRow> {
  const row = await admin.operator(id);
  if (row === undefined) throw notFound(new UnknownIdError("operator", id, "operator list"));
  return row;
}
