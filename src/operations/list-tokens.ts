import { command, optional, tableOf, text } from "./command.ts";
import { allRows, knownOrganization, oldestFirst } from "./core.ts";
import { operation, organizationIn } from "./operation.ts";
import { capText, tokenJson } from "./token-terms.ts";

export const listTokens = operation({
  route: "GET /tokens",
  permission: "tokens:read",
  summary: "List access tokens, the newest first, without their secrets",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      organization_id: s.Type.Optional(s.Id),
      status: s.Type.Optional(s.TokenStatus),
      search: s.Type.Optional(s.Type.String({ maxLength: 200, description: "Part of the name, an id, or a prefix." })),
    }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Token) },
  async handle({ directory }, { who, query: { organization_id, search = null, status = null }, page }) {
    return directory.tokens({ organizationId: organizationIn(who, organization_id), search, status, ...page });
  },
  commands: [
    command({
      usage: "token list",
      summary: "List the access tokens, the oldest first, without their secrets",
      flags: { organizationId: optional("--org <id>", "only those of this organization", text) },
      async run(services, input) {
        const organizationId = await knownOrganization(services, input.organizationId);
        const rows = await allRows((page) => services.accounts.tokens({ ...page, organizationId }));
        const json = oldestFirst(rows).map(tokenJson);
        const text = tableOf(json, {
          ID: ({ id }) => id,
          ORGANIZATION: ({ organizationId }) => organizationId,
          NAME: ({ name }) => name,
          TOKEN: ({ prefix }) => `${prefix}…`,
          EXPIRES: ({ revokedAt, expiresAt }) => (revokedAt === null ? (expiresAt ?? "never") : `revoked ${revokedAt}`),
          CAP: capText,
          SCOPES: ({ scopes }) => scopes.join(" "),
        });
        return { json, text };
      },
    }),
  ],
});
