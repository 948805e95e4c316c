import { type Static, Type } from "typebox";
import { Id, Nullable, PageOf, PageQuery, Strict, Time } from "./common.ts";

export const AuditEntry = Type.Object({
  object: Type.Literal("audit_entry"),
  id: Id,
  at: Time,
  actor: Type.Object({
    kind: Type.Enum(["operator", "member", "command", "service"]),
    id: Nullable(Id),
    address: Nullable(Type.String()),
  }),
  action: Type.String({ description: "Such as `token.revoke`." }),
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
