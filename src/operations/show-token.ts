import type { Token } from "../api/admin/token.ts";
import { notFound } from "./core.ts";
import { type OperationServices, operation, requireOwn } from "./operation.ts";

export const showToken = operation({
  route: "GET /tokens/:id",
  access: "member",
  summary: "Show an access token, without its secret",
  answer: { status: 200, description: "The token.", schema: (s) => s.Token },
  async handle(services, { who, params }) {
    const token = await tokenAnswer(services, params.id);
    requireOwn(who, token.organization_id);
    return token;
  },
});

/** Returns a token as the API shows it. Rejects with not_found. */
export async function tokenAnswer({ directory }: Pick<OperationServices, "directory">, id: string): Promise<Token> {
  const token = await directory.token(id);
  if (token === undefined) throw notFound();
  return token;
}
