import { auditRow } from "../admin/audit.ts";
import { holderIdOf } from "../admin/directory.ts";
import { hashOfSession } from "../admin/token.ts";
import { UnknownIdError } from "../errors.ts";
import { argument, command, text } from "./command.ts";
import { type Core, notFound } from "./core.ts";
import { operation } from "./operation.ts";

export const endSession = operation({
  route: "DELETE /sessions/:id",
  permission: "sessions:end",
  summary: "End a session of the console at once; its holder can sign in again",
  answer: { status: 204, description: "The session has ended." },
  handle: (services, { params }) => closeSession(services, params.id),
  commands: [
    command({
      usage: "session end <id>",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        await closeSession(services, id);
        return { json: { id }, text: `${id} has ended.` };
      },
    }),
  ],
});

async function closeSession(core: Core, id: string): Promise<void> {
  const session = await core.admin.session(hashOfSession(id));
  if (session === undefined) throw notFound(new UnknownIdError("session", id, "session list"));
  const { hash, tokenId, person } = session;
  const token = tokenId === null ? undefined : await core.accounts.token(tokenId);
  const organizationId = token?.organizationId ?? person?.organizationId ?? null;
  const subject = { organizationId, subjectId: holderIdOf(session) };
  await core.admin.deleteSession(hash, auditRow(core.actor, { action: "session.end", ...subject }, core));
}
