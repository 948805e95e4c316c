import { holderIdOf } from "../admin/directory.ts";
import type { Administrator, BegunSession } from "../admin/sessions.ts";
import { hashOfSession, idOfPerson, SIGN_IN_LIFE_MS } from "../admin/token.ts";
import { PERMISSIONS, permits } from "../api/admin/roles.ts";
import type { Session, SignInAddress } from "../api/admin/session.ts";
import { pick } from "../api/json.ts";
import { isoTime } from "../api/time.ts";
import { ApiError } from "../errors.ts";
import { argument, text } from "./command.ts";
import { type Core, found, rowRecord } from "./core.ts";
import { type CallConnection, type OperationServices, operation, sharedOperation } from "./operation.ts";

/** More than people behind one address need, with sessions of an hour. */
const PER_MINUTE = 60;

export const beginSignIn = operation({
  route: "POST /session/authorization",
  permission: "session:own",
  summary: "Begin to sign in with an identity provider: open the returned address in the browser within 10 minutes",
  body: (s) =>
    s.Strict({
      issuer: s.Type.String({ maxLength: 2000, description: "One of `identity_providers` of `GET /service`." }),
      prompt: s.Type.Optional(
        s.Type.Literal("login", { description: "Asks who signs in, even if the provider knows: for another account." }),
      ),
    }),
  isRepeatable: false,
  answer: { status: 200, description: "The address; a cookie is set.", schema: (s) => s.SignInAddress },
  countGuest: countSignIn,
  async handle({ openIdSignIn }, { body, connection }): Promise<SignInAddress> {
    const { url, secret } = await openIdSignIn.begin(body.issuer, redirectUriOf(connection), body.prompt);
    connection.setCookie("signIn", secret, SIGN_IN_LIFE_MS);
    return { object: "sign_in_address", url };
  },
});

/** Counts the requests of an address for which the service sends requests to an identity provider. */
async function countSignIn({ gateway }: Pick<OperationServices, "gateway">, clientKey: string): Promise<void> {
  await gateway.limits.countRequest([{ key: `sign-in:provider:${clientKey}`, limit: PER_MINUTE }]);
}

/** Returns the page of the console to which a provider sends the browser back. Throws invalid_value. */
function redirectUriOf({ publicUrl }: CallConnection): string {
  const url = URL.parse(`${publicUrl}/sign-in`);
  if (url !== null) return url.href;
  throw new ApiError("invalid_value", "The header `Host` does not contain the address of this service.");
}

export const completeSignIn = operation({
  route: "POST /session/callback",
  permission: "session:own",
  summary: "Complete a sign-in with the query that an identity provider added to the address of the console",
  body: (s) =>
    s.Strict({
      query: s.Type.String({ maxLength: 8000, description: "Such as `code=…&state=…`, as the browser received it." }),
    }),
  isRepeatable: false,
  answer: { status: 200, description: "The session; its cookie is set.", schema: (s) => s.Session },
  countGuest: countSignIn,
  async handle(services, { body, connection }) {
    const { openIdSignIn, sessions } = services;
    const { origin } = connection;
    const secret = connection.secretOf("signIn");
    connection.setCookie("signIn");
    const outcome = await openIdSignIn.complete(secret, redirectUriOf(connection), body.query);
    if ("person" in outcome) {
      return openSession(services, connection, await sessions.signInPerson(outcome.person, origin));
    }
    await connection.countFailedSignIn();
    await sessions.recordRefusedPerson(outcome.failure, origin);
    throw outcome.error;
  },
});

export const signIn = operation({
  route: "POST /session",
  permission: "session:own",
  summary: "Sign in: with the token of an operator or an auditor, or as a member with an organization's token",
  body: (s) =>
    s.Strict({
      token: s.Type.String({
        minLength: 1,
        maxLength: 200,
        description:
          "The token of an operator or an auditor, or an organization's token with the scope `console:read`.",
      }),
    }),
  isRepeatable: false,
  answer: { status: 200, description: "The session; its cookie is set.", schema: (s) => s.Session },
  async handle(services, { body, connection }) {
    const begun = await services.sessions.signIn(body.token, connection.origin, connection.countFailedSignIn);
    return openSession(services, connection, begun);
  },
});

async function openSession(
  services: OperationServices,
  connection: CallConnection,
  { secret, who, expiresAtMs }: BegunSession,
): Promise<Session> {
  const { sessions, clock } = services;
  const earlier = connection.secretOf("session");
  if (earlier !== undefined) await sessions.end(earlier, connection.origin);
  connection.setCookie("session", secret, expiresAtMs - clock());
  return sessionAnswer(services, who);
}

export const showSession = operation({
  route: "GET /session",
  permission: "session:own",
  summary: "Show who is signed in",
  answer: { status: 200, description: "The session; without a role if there is none.", schema: (s) => s.Session },
  handle: (services, { who }) => sessionAnswer(services, who),
});

async function sessionAnswer({ accounts }: Pick<Core, "accounts">, who: Administrator | null): Promise<Session> {
  const { role = null, organizationId = null, person = null, prefix = null } = who ?? {};
  const organization = organizationId === null ? undefined : await accounts.organization(organizationId);
  const mayComplete =
    permits(role, "playground:use") && who?.token?.scopes.includes("chat.completions:write") !== false;
  return {
    object: "session",
    role,
    permissions: PERMISSIONS.filter((permission) => permits(role, permission)),
    organization: organizationId === null ? null : { id: organizationId, name: organization?.name ?? "" },
    token: who === null || prefix === null ? null : { id: who.id, name: who.name, prefix },
    person: person && { ...pick(person, ["issuer", "subject", "name"]), id: idOfPerson(person) },
    sign_out_url: person?.signOutUrl ?? null,
    may_complete: who !== null && mayComplete,
    expires_at: isoTime(who?.session?.expiresAtMs ?? null),
  };
}

export const signOut = operation({
  route: "DELETE /session",
  permission: "session:own",
  summary: "Sign out",
  answer: { status: 204, description: "The session has ended, and its cookie is cleared." },
  async handle({ sessions }, { connection }) {
    const secret = connection.secretOf("session");
    if (secret !== undefined) await sessions.end(secret, connection.origin);
    connection.setCookie("session");
  },
});

export const listSessions = sharedOperation({
  route: "GET /sessions",
  permission: "sessions:read",
  summary: "List the open sessions of the console, the newest first",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.OpenSession) },
  handle: ({ directory }, { page }) => directory.sessions(page),
  commands: (make) => [
    make.list({
      usage: "session list",
      flags: {},
      columns: {
        ID: ({ id }) => id,
        ROLE: ({ role }) => role,
        NAME: ({ holder }) => holder.name,
        ORGANIZATION: ({ organization_id }) => organization_id,
        "LAST SEEN": ({ last_seen_at }) => last_seen_at,
        EXPIRES: ({ expires_at }) => expires_at,
      },
    }),
  ],
});

export const endSession = sharedOperation({
  route: "DELETE /sessions/:id",
  permission: "sessions:end",
  summary: "End a session of the console at once; its holder can sign in again",
  answer: { status: 204, description: "The session has ended." },
  async handle(core, { params: { id } }) {
    const session = await found(core.admin.session(hashOfSession(id)), { kind: "session", id });
    const { hash, tokenId, person } = session;
    const token = tokenId === null ? undefined : await core.accounts.token(tokenId);
    const organizationId = token?.organizationId ?? person?.organizationId ?? null;
    await core.admin.deleteSession(hash, rowRecord(core, "session.end", { organizationId, id: holderIdOf(session) }));
  },
  commands: (make) => [
    make.command({
      usage: "session end <id>",
      flags: { id: argument("<id>", text) },
      json: (_, { id }) => ({ id }),
      text: (_, { id }) => `${id} has ended.`,
    }),
  ],
});
