import { type Administrator, MEMBER_SCOPE, type SignInOutcome } from "../../admin/sessions.ts";
import { ServiceFacts, Session, SignIn } from "../../api/admin/session.ts";
import { isoTime } from "../../api/time.ts";
import { ApiError } from "../../errors.ts";
import { clearSessionCookie, countFailedSignIn, sessionSecret, setSessionCookie } from "./authentication.ts";
import { type AdminServices, adminEndpoint, originOf } from "./endpoint.ts";

const REFUSALS = {
  unknown: () => new ApiError("invalid_token", "The token is not valid."),
  expired: () => new ApiError("expired_token"),
  playground: () => new ApiError("usage_not_available_for_playground"),
  scope_missing: () => new ApiError("insufficient_scope", `To sign in, the token needs the scope \`${MEMBER_SCOPE}\`.`),
} satisfies Record<Exclude<SignInOutcome["outcome"], "signed_in">, () => ApiError>;

const signIn = adminEndpoint({
  method: "POST",
  path: "/session",
  access: "public",
  operationId: "signIn",
  summary: "Sign in: with the admin token, or as a member with an organization's token",
  body: SignIn,
  isRepeatable: false,
  response: { status: 200, description: "The session; its cookie is set.", schema: Session },
  async handle(services, { request, reply, body }) {
    const { sessions, gateway, clock } = services;
    const countFailure = () => countFailedSignIn(gateway.limits, request);
    const outcome = await sessions.signIn(body.token, originOf(request), countFailure);
    if (outcome.outcome !== "signed_in") throw REFUSALS[outcome.outcome]();
    const earlier = sessionSecret(request);
    if (earlier !== undefined) await sessions.end(earlier, originOf(request));
    setSessionCookie(request, reply, outcome.secret, outcome.expiresAtMs - clock());
    return answerOf(services, outcome.who);
  },
});

const showSession = adminEndpoint({
  method: "GET",
  path: "/session",
  access: "public",
  operationId: "showSession",
  summary: "Show who is signed in",
  response: { status: 200, description: "The session; without a role if there is none.", schema: Session },
  async handle(services, { who }): Promise<Session> {
    return who === null ? NO_SESSION : answerOf(services, who);
  },
});

const signOut = adminEndpoint({
  method: "DELETE",
  path: "/session",
  access: "public",
  operationId: "signOut",
  summary: "Sign out",
  response: { status: 204, description: "The session has ended, and its cookie is cleared." },
  async handle({ sessions }, { request, reply }) {
    const secret = sessionSecret(request);
    if (secret !== undefined) await sessions.end(secret, originOf(request));
    clearSessionCookie(request, reply);
  },
});

const showService = adminEndpoint({
  method: "GET",
  path: "/service",
  access: "public",
  operationId: "showService",
  summary: "Show the facts of the service that need no sign-in",
  response: { status: 200, description: "The facts.", schema: ServiceFacts },
  async handle({ facts }): Promise<ServiceFacts> {
    return facts;
  },
});

export const sessionEndpoints = [showService, signIn, showSession, signOut];

const NO_SESSION: Session = {
  object: "session",
  role: null,
  organization: null,
  token: null,
  may_complete: false,
  expires_at: null,
};

async function answerOf({ accounts }: AdminServices, who: Administrator): Promise<Session> {
  const expiresAt = who.session === null ? null : isoTime(who.session.expiresAtMs);
  const common = { object: "session", role: who.role, expires_at: expiresAt } as const;
  if (who.role === "operator") {
    const token = { ...who.adminToken, name: "admin token" };
    return { ...common, organization: null, token, may_complete: true };
  }
  const { id, name, prefix, scopes, organizationId } = who.token;
  const organization = await accounts.organization(organizationId);
  return {
    ...common,
    organization: { id: organizationId, name: organization?.name ?? "" },
    token: { id, name, prefix },
    may_complete: scopes.includes("chat.completions:write"),
  };
}
