import type { Static } from "typebox";
import type { RotateOutcome } from "../../admin/accounts.ts";
import {
  NewToken,
  RotatedToken,
  Token,
  TokenChange,
  TokenPage,
  TokenQuery,
  TokenRotation,
  TokenWithSecret,
} from "../../api/admin/token.ts";
import { ApiError } from "../../errors.ts";
import {
  type AdminServices,
  actorOf,
  adminEndpoint,
  amountOf,
  limitSettingsOf,
  listOf,
  notFound,
  organizationIn,
  pageOf,
  requireOwn,
  timeOf,
  withApiErrors,
} from "./endpoint.ts";

const OVERLAP_SECONDS = 3600;
const SECRET = {
  field: "secret",
  hint: ({ id }: Record<string, unknown>) =>
    `The secret of ${id} was shown in the first response and is not stored. If it is lost, revoke ${id} and create another token.`,
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
    return listOf(await withApiErrors(directory.tokens({ ...filter, ...pageOf(query) })));
  },
});

const createToken = adminEndpoint({
  method: "POST",
  path: "/tokens",
  access: "operator",
  operationId: "createToken",
  summary: "Create an access token; only this response contains its secret",
  body: NewToken,
  response: { status: 201, description: "The token with its secret.", schema: TokenWithSecret },
  secret: SECRET,
  async handle(services, call): Promise<TokenWithSecret> {
    const { organization_id, ...terms } = call.body;
    const nothing = { scopes: null, models: null, limits: null, cap: null, expiresAtMs: null };
    const draft = { organizationId: organization_id, ...nothing, ...termsOf(terms), name: terms.name };
    const made = await withApiErrors(services.accounts.as(actorOf(call)).createToken(draft));
    if (made.outcome === "unknown_organization") {
      throw new ApiError("invalid_value", "There is no organization with this id.", { param: "organization_id" });
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

const changeToken = adminEndpoint({
  method: "PATCH",
  path: "/tokens/:id",
  access: "operator",
  operationId: "changeToken",
  summary: "Change an access token; takes effect within 1 s on one node and within 5 s on all nodes",
  body: TokenChange,
  response: { status: 200, description: "The token as it is now.", schema: Token },
  async handle(services, call) {
    const accounts = services.accounts.as(actorOf(call));
    const { outcome } = await withApiErrors(accounts.changeToken(call.params.id, termsOf(call.body)));
    if (outcome === "unknown_token") throw notFound();
    if (outcome === "ended") throw new ApiError("token_ended");
    return show(services, call.params.id);
  },
});

const rotateToken = adminEndpoint({
  method: "POST",
  path: "/tokens/:id/rotate",
  access: "operator",
  operationId: "rotateToken",
  summary: "Replace an access token with a new one of the same permissions and lifetime",
  body: TokenRotation,
  response: { status: 201, description: "The new token with its secret, and the old one.", schema: RotatedToken },
  secret: SECRET,
  async handle(services, call): Promise<RotatedToken> {
    const overlapMs = (call.body.overlap_seconds ?? OVERLAP_SECONDS) * 1000;
    const { replace = false } = call.body;
    const rotated = await services.accounts.as(actorOf(call)).rotateToken(call.params.id, overlapMs, { replace });
    if (rotated.outcome === "unknown_token") throw notFound();
    if (rotated.outcome === "ended") throw new ApiError("token_ended");
    if (rotated.outcome === "already_rotated") throw alreadyRotated(rotated);
    const [made, replaces] = await Promise.all([show(services, rotated.row.id), show(services, call.params.id)]);
    return { ...made, secret: rotated.token, replaces };
  },
});

const revokeToken = adminEndpoint({
  method: "POST",
  path: "/tokens/:id/revoke",
  access: "operator",
  operationId: "revokeToken",
  summary: "Revoke an access token; takes effect within 1 s on one node and within 5 s on all nodes",
  response: { status: 200, description: "The token as it is now.", schema: Token },
  async handle(services, call) {
    const { outcome } = await services.accounts.as(actorOf(call)).revokeToken(call.params.id);
    if (outcome === "unknown_token") throw notFound();
    return show(services, call.params.id);
  },
});

export const tokenEndpoints = [listTokens, createToken, showToken, changeToken, rotateToken, revokeToken];

/** Returns the terms that a body has. */
function termsOf({ limits, cap, expires_at, ...terms }: Static<typeof TokenChange>) {
  return {
    ...terms,
    ...(limits !== undefined && { limits: limitSettingsOf(limits) }),
    ...(cap !== undefined && { cap: amountOf("cap", cap) }),
    ...(expires_at !== undefined && { expiresAtMs: timeOf("expires_at", expires_at) }),
  };
}

function alreadyRotated({ successorId, isUsed }: Extract<RotateOutcome, { outcome: "already_rotated" }>): ApiError {
  const hint = isUsed
    ? "That token was used; rotate it instead."
    : "That token was never used; send `replace: true` to get a new one in its place.";
  const message = `The token was already rotated; its successor is ${successorId}. ${hint}`;
  return new ApiError("already_rotated", message, { fields: { successor_id: successorId } });
}

async function show({ directory }: AdminServices, id: string): Promise<Token> {
  const token = await directory.token(id);
  if (token === undefined) throw notFound();
  return token;
}
