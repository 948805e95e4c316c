import type { BegunSession } from "../admin/sessions.ts";
import type { Session } from "../api/admin/session.ts";
import { type CallConnection, type OperationServices, operation } from "./operation.ts";
import { sessionAnswer } from "./show-session.ts";

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

/** Replaces the session of a browser, and returns the answer. */
export async function openSession(
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
