import type { Administrator } from "../admin/sessions.ts";
import type { Session } from "../api/admin/session.ts";
import { isoTime } from "../api/time.ts";
import type { Core } from "./core.ts";
import { operation } from "./operation.ts";

export const showSession = operation({
  route: "GET /session",
  access: "public",
  summary: "Show who is signed in",
  answer: { status: 200, description: "The session; without a role if there is none.", schema: (s) => s.Session },
  handle: (services, { who }) => sessionAnswer(services, who),
});

export async function sessionAnswer({ accounts }: Pick<Core, "accounts">, who: Administrator | null): Promise<Session> {
  const expiresAt = who === null || who.session === null ? null : isoTime(who.session.expiresAtMs);
  const session = { object: "session", role: who?.role ?? null, organization: null, expires_at: expiresAt } as const;
  if (who === null) return { ...session, token: null, may_complete: false };
  if (who.role === "operator") {
    return { ...session, token: { ...who.adminToken, name: "admin token" }, may_complete: true };
  }
  const { id, name, prefix, scopes, organizationId } = who.token;
  const organization = await accounts.organization(organizationId);
  return {
    ...session,
    organization: { id: organizationId, name: organization?.name ?? "" },
    token: { id, name, prefix },
    may_complete: scopes.includes("chat.completions:write"),
  };
}
