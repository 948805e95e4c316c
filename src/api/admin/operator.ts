import { type Static, Type } from "typebox";
import { ObjectOf, TextOf } from "../schema.ts";
import { Entity, Id, Name, Nullable, Strict, Time } from "./common.ts";
import { ROLES, SERVICE_ROLES } from "./roles.ts";

const OperatorRole = Type.Enum([...SERVICE_ROLES], {
  description: "An operator may do everything; an auditor reads everything and changes nothing.",
});

export const Operator = Entity("operator", {
  id: Id,
  name: TextOf("The name that the audit log shows."),
  role: OperatorRole,
  prefix: TextOf("First characters of the secret, to identify it."),
  status: Type.Enum(["active", "revoked"]),
  created_at: Time,
  revoked_at: Nullable(Time),
});
export type Operator = Static<typeof Operator>;
export const NewOperator = Strict({ name: Name, role: OperatorRole });
/** The secret is only in the response to the request that created the operator. */
export const OperatorWithSecret = Type.Object({ ...Operator.properties, secret: Type.String() });

/** A person or a caller whom an identity provider identifies, by issuer and subject. */
export const Identity = Entity("identity", {
  id: Id,
  issuer: Type.String(),
  subject: Type.String(),
  name: Nullable(TextOf("Name or email address, as the issuer stated it.")),
  status: Type.Enum(["active", "blocked"]),
  created_at: Time,
  blocked_at: Nullable(Time),
});
export type Identity = Static<typeof Identity>;
export const IdentityName = Strict({
  issuer: Type.String({ minLength: 1, maxLength: 2_000, description: "The claim `iss`." }),
  subject: Type.String({ minLength: 1, maxLength: 255, description: "The claim `sub`." }),
});

export const OpenSession = Entity("open_session", {
  id: Id,
  role: Type.Enum([...ROLES]),
  holder: ObjectOf("The operator, the token of the member, or the person at an identity provider.", {
    ...{ id: Id, name: Type.String() },
  }),
  organization_id: Nullable(Id),
  created_at: Time,
  last_seen_at: Time,
  expires_at: Time,
});
export type OpenSession = Static<typeof OpenSession>;
