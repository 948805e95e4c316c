import {
  NewToken,
  RotatedToken,
  Token,
  TokenPage,
  TokenQuery,
  TokenRotation,
  TokenWithSecret,
} from "../../contract/admin/token.ts";
import { ApiError } from "../../errors.ts";
import {
  amountOf,
  limitSettingsOf,
  listOf,
  nothingThere,
  organizationIn,
  orRefuse,
  pageOf,
  requireOwn,
  timeOf,
} from "./answers.ts";
import { type AdminServices, actorOf, adminEndpoint } from "./endpoint.ts";

const OVERLAP_SECONDS = 3600;
const SECRET = {
  field: "secret",
  hint: ({ id }: Record<string, unknown>) =>
    `The secret of ${id} was shown in the first answer and is not stored. If it is lost, revoke ${id} and create another token.`,
};

const listTokens = adminEndpoint({
  method: "GET",
  path: "/tokens",
  access: "member",
  operationId: "listTokens",
  summary: "List access tokens, the newest first, without their secrets",
  query: TokenQuery,
  response: { status: 200, description: "A page.", schema: TokenPage },
  async handle({ directory }, { who, query }) {
    const organizationId = organizationIn(who, query.organization_id);
    const filter = { organizationId, search: query.search ?? null, status: query.status ?? null };
    return listOf(await orRefuse(directory.tokens({ ...filter, ...pageOf(query) })));
  },
});

const createToken = adminEndpoint({
  method: "POST",
  path: "/tokens",
  access: "operator",
  operationId: "createToken",
  summary: "Make an access token; its secret is in this answer and never again",
  body: NewToken,
  response: { status: 201, description: "The token with its secret.", schema: TokenWithSecret },
  secret: SECRET,
  async handle(services, call): Promise<TokenWithSecret> {
    const { organization_id, name, scopes = null, models = null, limits, cap, expires_at } = call.body;
    const draft = {
      organizationId: organization_id,
      name,
      scopes,
      models,
      limits: limitSettingsOf(limits),
      cap: amountOf("cap", cap),
      expiresAtMs: timeOf("expires_at", expires_at),
    };
    const made = await orRefuse(services.accounts.as(actorOf(call)).createToken(draft));
    if (made.outcome === "unknown_organization") {
      throw new ApiError("invalid_value", "There is no organization of this id.", { param: "organization_id" });
    }
    return { ...(await show(services, made.row.id)), secret: made.token };
  },
});

const showToken = adminEndpoint({
  method: "GET",
  path: "/tokens/:id",
  access: "member",
  operationId: "showToken",
  summary: "Show an access token, without its secret",
  response: { status: 200, description: "The token.", schema: Token },
  async handle(services, { who, params }) {
    const token = await show(services, params.id);
    requireOwn(who, token.organization_id);
    return token;
  },
});

const rotateToken = adminEndpoint({
  method: "POST",
  path: "/tokens/:id/rotate",
  access: "operator",
  operationId: "rotateToken",
  summary: "Replace an access token by a new one with the same rights and length of life",
  body: TokenRotation,
  response: { status: 201, description: "The new token with its secret, and the old one.", schema: RotatedToken },
  secret: SECRET,
  async handle(services, call): Promise<RotatedToken> {
    const overlapMs = (call.body.overlap_seconds ?? OVERLAP_SECONDS) * 1000;
    const rotated = await services.accounts.as(actorOf(call)).rotateToken(call.params.id, overlapMs);
    if (rotated.outcome === "unknown_token") throw nothingThere();
    if (rotated.outcome === "ended") throw new ApiError("token_ended");
    const [made, replaces] = await Promise.all([show(services, rotated.row.id), show(services, call.params.id)]);
    return { ...made, secret: rotated.token, replaces };
  },
});

const revokeToken = adminEndpoint({
  method: "POST",
  path: "/tokens/:id/revoke",
  access: "operator",
  operationId: "revokeToken",
  summary: "End an access token, within a second on this node and within 5 on all",
  response: { status: 200, description: "The token as it is now.", schema: Token },
  async handle(services, call) {
    const { outcome } = await services.accounts.as(actorOf(call)).revokeToken(call.params.id);
    if (outcome === "unknown_token") throw nothingThere();
    return show(services, call.params.id);
  },
});

export const tokenEndpoints = [listTokens, createToken, showToken, rotateToken, revokeToken];

async function show({ directory }: AdminServices, id: string): Promise<Token> {
  const token = await directory.token(id);
  if (token === undefined) throw nothingThere();
  return token;
}
