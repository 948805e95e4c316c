import { countSignIn, redirectUriOf } from "./begin-sign-in.ts";
import { operation } from "./operation.ts";
import { openSession } from "./sign-in.ts";

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
