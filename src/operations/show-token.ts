import { found } from "./core.ts";
import { operation, requireOwn } from "./operation.ts";

export const showToken = operation({
  route: "GET /tokens/:id",
  permission: "tokens:read",
  summary: "Show an access token, without its secret",
  answer: { status: 200, description: "The token.", schema: (s) => s.Token },
  async handle(services, { who, params }) {
    const token = await found(services.directory.token(params.id));
    requireOwn(who, token.organization_id);
    return token;
  },
});
