import { type Static, Type } from "typebox";
import { Id, Nullable, PageOf, PageQuery, Strict, Time } from "./common.ts";

/** Recorded actions: every change, every sign-in and every view of a conversation. */
export type AuditAction =
  | "organization.create"
  | "organization.change"
  | "token.create"
  | "token.rotate"
  | "token.revoke"
  | "admin_token.create"
  | "admin_token.replace"
  | "session.sign_in"
  | "session.sign_in_failed"
  | "session.sign_out"
  | "playground_token.create"
  | "credits.grant"
  | "credits.revoke"
  | "credits.credit"
  | "allowance.create"
  | "allowance.end"
  | "conversation.read"
  | "conversations.remove";

export const AuditEntry = Type.Object({
  object: Type.Literal("audit_entry"),
  id: Id,
  at: Time,
  actor: Type.Object({
    kind: Type.Enum(["operator", "member", "command", "service", "anonymous"]),
    id: Nullable(Id),
    address: Nullable(Type.String()),
  }),
  action: Type.String({ description: "For example `token.revoke` or `session.sign_in`." }),
  organization_id: Nullable(Id),
  subject_id: Nullable(Id),
  before: Nullable(Type.Record(Type.String(), Type.Unknown())),
  after: Nullable(Type.Record(Type.String(), Type.Unknown())),
  request_id: Nullable(Id),
});
export type AuditEntry = Static<typeof AuditEntry>;
export const AuditQuery = Strict({
  ...PageQuery,
  organization_id: Type.Optional(Id),
  action: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
});
export const AuditPage = PageOf(AuditEntry);
