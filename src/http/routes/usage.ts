import type { FastifyRequest } from "fastify";
import { type Static, Type } from "typebox";
import { Nullable } from "../../api/admin/common.ts";
import type { LimitSettings, Principal } from "../../api/principal.ts";
import { UsageReport } from "../../api/usage.ts";
import { ApiError } from "../../errors.ts";
import { limitKeys } from "../../gateway/limits.ts";
import { principalOf } from "../authentication.ts";
import type { Endpoint, EndpointServices } from "./endpoint.ts";

const Amount = Nullable(Type.Number());
const Models = Type.Array(Type.String());

export const reportUsage: Endpoint = {
  method: "GET",
  path: "/v1/usage",
  scope: "usage:read",
  operationId: "reportUsage",
  summary: "Report credits",
  description: "The credits of the token's organization. Not available for the playground organization.",
  response: { description: "The credits.", schema: UsageReport },
  async handle({ usageReport }, request): Promise<UsageReport> {
    return usageReport(customerOf(request));
  },
};

function customerOf(request: FastifyRequest): Principal {
  const principal = principalOf(request);
  if (principal.organizationKind === "playground") throw new ApiError("usage_not_available_for_playground");
  return principal;
}

/** The shape that clients of OpenRouter read, with further fields. */
const Key = Type.Object({
  data: Type.Object({
    label: Type.String({ description: "First characters of the token." }),
    name: Type.String(),
    organization_id: Type.String(),
    usage: Amount,
    limit: Amount,
    limit_remaining: Amount,
    credits_available: Type.Number(),
    is_free_tier: Type.Literal(false),
    rate_limit: Type.Object({ requests: Type.Integer(), interval: Type.Literal("1m") }),
    tokens_per_minute: Type.Integer(),
    concurrent_requests: Type.Integer(),
    models: Nullable(Models),
    expires_at: Nullable(Type.String()),
  }),
});

export const showKey: Endpoint = {
  method: "GET",
  path: "/v1/key",
  scope: "usage:read",
  operationId: "showKey",
  summary: "Show the token of the request",
  description:
    "The spending cap and the limits of the token, and the credits of its organization, in the shape of OpenRouter's API. `usage`, `limit` and `limit_remaining` are those of the cap, and null without one. Not available for the playground organization.",
  response: { description: "The token.", schema: Key },
  async handle(services, request): Promise<Static<typeof Key>> {
    const { token, limits, available, cap } = await keyOf(services, request);
    return {
      data: {
        label: token.prefix,
        name: token.name,
        organization_id: token.organization_id,
        usage: cap?.spent ?? null,
        limit: cap?.amount ?? null,
        limit_remaining: cap?.remaining ?? null,
        credits_available: available,
        is_free_tier: false,
        rate_limit: { requests: limits.requestsPerMinute, interval: "1m" },
        tokens_per_minute: limits.tokensPerMinute,
        concurrent_requests: limits.concurrentRequests,
        models: token.models,
        expires_at: token.expires_at,
      },
    };
  },
};

/** The shape that clients of LiteLLM read. */
const KeyInfo = Type.Object({
  key: Type.String(),
  info: Type.Object({
    key_name: Type.String(),
    key_alias: Type.String(),
    team_id: Type.String(),
    spend: Amount,
    max_budget: Amount,
    rpm_limit: Type.Integer(),
    tpm_limit: Type.Integer(),
    max_parallel_requests: Type.Integer(),
    models: Models,
    expires: Nullable(Type.String()),
  }),
});

export const showKeyInfo: Endpoint = {
  method: "GET",
  path: "/key/info",
  scope: "usage:read",
  operationId: "showKeyInfo",
  summary: "Show the token of the request in LiteLLM's shape",
  description: "The same as GET /v1/key, in the shape of LiteLLM's API.",
  response: { description: "The token.", schema: KeyInfo },
  async handle(services, request): Promise<Static<typeof KeyInfo>> {
    const { token, limits, cap } = await keyOf(services, request);
    return {
      key: token.prefix,
      info: {
        key_name: token.prefix,
        key_alias: token.name,
        team_id: token.organization_id,
        spend: cap?.spent ?? null,
        max_budget: cap?.amount ?? null,
        rpm_limit: limits.requestsPerMinute,
        tpm_limit: limits.tokensPerMinute,
        max_parallel_requests: limits.concurrentRequests,
        models: token.models ?? [],
        expires: token.expires_at,
      },
    };
  },
};

/** Returns the token of a request, its limits, and what may still be spent. Rejects for the playground organization. */
async function keyOf({ gateway, directory, usageReport }: EndpointServices, request: FastifyRequest) {
  const principal = customerOf(request);
  const [token, usage] = await Promise.all([directory.token(principal.tokenId), usageReport(principal)]);
  if (token === undefined) throw new ApiError("invalid_token");
  const limitOf = (unit: keyof LimitSettings) => limitKeys(gateway, principal, unit)[0].limit;
  const limits: LimitSettings = {
    requestsPerMinute: limitOf("requestsPerMinute"),
    tokensPerMinute: limitOf("tokensPerMinute"),
    concurrentRequests: limitOf("concurrentRequests"),
  };
  const { cap } = token;
  const left = cap === null ? 0 : Math.max(0, cap.amount - cap.spent - cap.held);
  // The sums of decimal fractions are not exact.
  const remaining = Number(left.toFixed(6));
  return { token, limits, cap: cap && { ...cap, remaining }, available: usage.creditsAvailable };
}
