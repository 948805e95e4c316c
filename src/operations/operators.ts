import { toOperator } from "../admin/directory.ts";
import { insertOperator } from "../admin/operators.ts";
import { SERVICE_ROLES } from "../api/admin/roles.ts";
import { ApiError } from "../errors.ts";
import { argument, facts, jsonOf, text, withDefault, wordOf } from "./command.ts";
import { checkName, found, rowRecord, shortText } from "./core.ts";
import { sharedOperation } from "./operation.ts";

export const listOperators = sharedOperation({
  route: "GET /operators",
  permission: "operators:read",
  summary: "List operators and auditors, the newest first, without their tokens",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Operator) },
  handle: ({ directory }, { page }) => directory.operators(page),
  commands: (make) => [
    make.list({
      usage: "operator list",
      flags: {},
      columns: {
        ID: ({ id }) => id,
        NAME: ({ name }) => name,
        ROLE: ({ role }) => role,
        TOKEN: ({ prefix }) => `${prefix}…`,
        CREATED: ({ created_at }) => created_at,
        STATUS: ({ status, revoked_at }) => (revoked_at === null ? status : `revoked ${revoked_at}`),
      },
    }),
  ],
});

export const createOperator = sharedOperation({
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
  async handle(core, { who, body }) {
    if (who !== null && who.person !== null) {
      const message = "People of an identity provider create no operators: the tokens would outlive their own role.";
      throw new ApiError("insufficient_role", message);
    }
    checkName(body.name);
    const made = await insertOperator(core, core.actor, body);
    if (made !== undefined) return { ...toOperator(made.row), secret: made.token };
    const message = `There is an operator named ${shortText(body.name)} already. Names are unique among those who are not revoked.`;
    throw new ApiError("invalid_value", message, { param: "name" });
  },
  commands: (make) => [
    make.command({
      usage: "operator create <name>",
      summary: "Create an operator or an auditor with a token of their own, shown once",
      flags: {
        name: argument("<name>", text),
        role: withDefault("--role <role>", SERVICE_ROLES.join(" or "), "operator", wordOf(SERVICE_ROLES)),
      },
      json: ({ secret, ...operator }) => ({ ...jsonOf(operator), token: secret }),
      text: ({ id, name, role, secret }) => facts({ id, name, role, token: secret }),
    }),
  ],
});

export const revokeOperator = sharedOperation({
  route: "DELETE /operators/:id",
  permission: "operators:write",
  summary: "Revoke an operator: the token and all sessions end at once; a repetition changes nothing",
  answer: { status: 200, description: "The operator as they are now.", schema: (s) => s.Operator },
  async handle(core, { params: { id } }) {
    const find = () => found(core.admin.operator(id), { kind: "operator", id });
    const row = await find();
    if (row.revokedAtMs !== null) return toOperator(row);
    const before = { name: row.name, role: row.role, prefix: row.prefix };
    const record = rowRecord(core, "operator.revoke", { organizationId: null, id }, { before });
    await core.admin.revokeOperator(id, core.clock(), record);
    return toOperator(await find());
  },
  commands: (make) => [
    make.command({
      usage: "operator revoke <id>",
      summary: "Revoke an operator: the token and all sessions end at once",
      flags: { id: argument("<id>", text) },
      text: ({ id, name, revoked_at }) => `${name} (${id}) is revoked since ${revoked_at}.`,
    }),
  ],
});
