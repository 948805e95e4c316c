import type { AuditAction } from "../../../../src/api/admin/audit.ts";
import type { AuditEntry } from "../../api/types.ts";

const ACTIONS: Record<AuditAction, string> = {
  "organization.create": "Organization created",
  "organization.change": "Organization changed",
  "token.create": "Token created",
  "token.rotate": "Token rotated",
  "token.revoke": "Token revoked",
  "admin_token.create": "Admin token created",
  "admin_token.replace": "Admin token replaced",
  "session.sign_in": "Signed in",
  "session.sign_in_failed": "Sign-in failed",
  "session.sign_out": "Signed out",
  "playground_token.create": "Playground token created",
  "credits.grant": "Credits granted",
  "credits.revoke": "Credits revoked",
  "credits.credit": "Credits refunded",
  "allowance.create": "Monthly allowance created",
  "allowance.end": "Monthly allowance ended",
  "conversation.read": "Prompts and answers viewed",
  "conversations.remove": "Prompts and answers deleted",
};

const ACTORS: Record<AuditEntry["actor"]["kind"], string> = {
  operator: "Operator",
  member: "Member",
  command: "Command line",
  service: "Service",
  anonymous: "Not signed in",
};

const REASONS: Record<string, string> = {
  unknown_token: "unknown token",
  revoked_token: "revoked token",
  expired_token: "expired token",
  insufficient_scope: "missing scope console:read",
  playground_token: "token of the playground organization",
};

/** An action in words; one of a newer version of the service as it is named. */
export function actionInWords(action: string): string {
  return ACTIONS[action as AuditAction] ?? action;
}

export function actorInWords({ kind }: AuditEntry["actor"]): string {
  return ACTORS[kind] ?? kind;
}

/** Values of an entry, with the reason of a failed sign-in in words. */
export function afterInWords({ action, after }: Pick<AuditEntry, "action" | "after">): AuditEntry["after"] {
  if (action !== "session.sign_in_failed" || after === null) return after;
  return { ...after, ...(typeof after.reason === "string" && { reason: REASONS[after.reason] ?? after.reason }) };
}
