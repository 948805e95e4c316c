import { operation } from "./operation.ts";

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
