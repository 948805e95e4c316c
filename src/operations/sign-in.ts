import { operation } from "./operation.ts";
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
    const { sessions, clock } = services;
    const { origin, sessionSecret: earlier } = connection;
    const { secret, who, expiresAtMs } = await sessions.signIn(body.token, origin, connection.countFailedSignIn);
    if (earlier !== undefined) await sessions.end(earlier, origin);
    connection.setSession(secret, expiresAtMs - clock());
    return sessionAnswer(services, who);
  },
});
