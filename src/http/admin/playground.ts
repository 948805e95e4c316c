import type { ShortToken } from "../../admin/short-tokens.ts";
import { PlaygroundToken, PlaygroundTokenRequest } from "../../api/admin/session.ts";
import { isoTime } from "../../api/time.ts";
import { ApiError } from "../../errors.ts";
import { clientAddressKey } from "../connection.ts";
import { type AdminCall, type AdminServices, actorOf, adminEndpoint, notFound, requireOwn } from "./endpoint.ts";

const createPlaygroundToken = adminEndpoint({
  method: "POST",
  path: "/playground/token",
  access: "public",
  operationId: "createPlaygroundToken",
  summary: "Create a short-lived access token for `/v1`; guests get one if the playground is open to them",
  body: PlaygroundTokenRequest,
  response: { status: 201, description: "The token.", schema: PlaygroundToken },
  secret: {
    field: "token",
    hint: () =>
      "The token was shown in the first response and is not stored. Ask for another one with a new Idempotency-Key.",
  },
  async countAttempt(services, { who, request }) {
    if (who === null) await countGuest(services, request.ip);
  },
  async handle(services, call): Promise<PlaygroundToken> {
    const { token, organizationId, expiresAtMs } = await shortTokenFor(services, call);
    const expiresAt = isoTime(expiresAtMs);
    const organization = await services.directory.organization(organizationId);
    return {
      object: "playground_token",
      token,
      organization_id: organizationId,
      keeps_conversations: organization?.keeps_conversations === true,
      expires_at: expiresAt,
    };
  },
});

export const playgroundEndpoints = [createPlaygroundToken];

async function countGuest({ gateway, facts }: AdminServices, address: string): Promise<void> {
  const limit = facts.guest_playground.requests_per_minute;
  await gateway.limits.countRequest([{ key: `guest:${clientAddressKey(address)}`, limit }]);
}

/** A member's short-lived token has the rights of the token that they signed in with. */
async function shortTokenFor(
  { shortTokens, facts }: AdminServices,
  call: AdminCall<unknown, PlaygroundTokenRequest>,
): Promise<ShortToken> {
  const { who } = call;
  const named = call.body.organization_id ?? null;
  const adminTokenId = who?.role === "operator" ? who.adminToken.id : null;
  const holder = { actor: actorOf(call), session: who?.session ?? null, adminTokenId };
  if (who?.role === "member") {
    if (named !== null) requireOwn(who, named);
    if (who.token.scopes.includes("chat.completions:write")) return shortTokens.issueFor(who.token, holder);
    throw new ApiError("insufficient_scope", "Your token needs the scope `chat.completions:write`.");
  }
  const organizationId = who === null ? guestsOrganization(facts, named) : named;
  if (organizationId === null) {
    const message = "Missing required parameter: 'organization_id': whose credits the playground spends.";
    throw new ApiError("missing_required_parameter", message, { param: "organization_id" });
  }
  const token = await shortTokens.consoleToken(organizationId, holder.actor);
  if (token === undefined) throw notFound();
  if (token.revokedAtMs !== null) throw new ApiError("token_ended", `The console's token ${token.id} was revoked.`);
  return shortTokens.issueFor(token, holder);
}

function guestsOrganization({ guest_playground }: AdminServices["facts"], named: string | null): string {
  if (!guest_playground.open) throw new ApiError("missing_token", "Sign in first: the playground is closed to guests.");
  if (named !== null && named !== guest_playground.organization_id) throw notFound();
  return guest_playground.organization_id;
}
