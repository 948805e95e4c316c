import type { Administrator } from "../admin/sessions.ts";
import { PERMISSIONS, permits } from "../api/admin/roles.ts";
import type { Session } from "../api/admin/session.ts";
import { isoTime } from "../api/time.ts";
import type { Person } from "../stores/queries/admin.ts";
import type { Core } from "./core.ts";
import { operation } from "./operation.ts";

export const showSession = operation({
  route: "GET /session",
  permission: "session:own",
  summary: "Show who is signed in",
  answer: { status: 200, description: "The session; without a role if there is none.", schema: (s) => s.Session },
  handle: (services, { who }) => sessionAnswer(services, who),
});

export async function sessionAnswer({ accounts }: Pick<Core, "accounts">, who: Administrator | null): Promise<Session> {
  const role = who?.role ?? null;
  const permissions = PERMISSIONS.filter((permission) => permits(role, permission));
  const session = { object: "session", role, permissions } as const;
  if (who === null)
    return { ...session, organization: null, token: null, ...NO_PERSON, may_complete: false, expires_at: null };
  const { id, name, prefix, organizationId, person } = who;
  const organization = organizationId === null ? undefined : await accounts.organization(organizationId);
  return {
    ...session,
    organization: organizationId === null ? null : { id: organizationId, name: organization?.name ?? "" },
    token: prefix === null ? null : { id, name, prefix },
    ...(person === null ? NO_PERSON : personAnswer(person)),
    may_complete: permits(role, "playground:use") && who.token?.scopes.includes("chat.completions:write") !== false,
    expires_at: who.session && isoTime(who.session.expiresAtMs),
  };
}

const NO_PERSON = { person: null, sign_out_url: null } as const;

function personAnswer({ issuer, subject, name, signOutUrl }: Person): Pick<Session, "person" | "sign_out_url"> {
  return { person: { issuer, subject, name }, sign_out_url: signOutUrl };
}
