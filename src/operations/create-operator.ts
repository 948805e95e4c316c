import { toOperator } from "../admin/directory.ts";
import { insertOperator, type NewOperatorToken } from "../admin/operators.ts";
import { SERVICE_ROLES, type ServiceRole } from "../api/admin/roles.ts";
import { ApiError } from "../errors.ts";
import { argument, command, facts, text, withDefault, wordOf } from "./command.ts";
import { type Core, checkName, shortText } from "./core.ts";
import { operation } from "./operation.ts";

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
