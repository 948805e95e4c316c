import { type Static, Type } from "typebox";
import { Id, Nullable, Strict, Time } from "./common.ts";

export const ROLES = ["operator", "member"] as const;
export type Role = (typeof ROLES)[number];

export const SignIn = Strict({
  token: Type.String({
    minLength: 1,
    maxLength: 200,
    description: "The admin token, or an organization's token with the scope `console:read`.",
  }),
});

/** Who is signed in; every field null where nobody is. */
export const Session = Type.Object({
  object: Type.Literal("session"),
  role: Nullable(Type.Enum([...ROLES])),
  organization: Nullable(Type.Object({ id: Id, name: Type.String() }, { description: "A member's." })),
  token: Nullable(
    Type.Object({ id: Id, name: Type.String(), prefix: Type.String() }, { description: "What was signed in with." }),
  ),
  may_complete: Type.Boolean({ description: "Whether the playground may be used: `POST /admin/v1/playground/token`." }),
  expires_at: Nullable(Time),
});
export type Session = Static<typeof Session>;
