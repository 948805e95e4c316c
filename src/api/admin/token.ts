import { type Static, Type } from "typebox";
import { LABEL_CHARACTERS_MAX } from "../chat/request.ts";
import { PIN_KEY, PINS_MAX, SCOPES } from "../principal.ts";
import { TextOf } from "../schema.ts";
import { Amount, Entity, Id, Limits, Name, Nullable, PositiveAmount, Strict, Time } from "./common.ts";

export const TokenStatus = Type.Enum(["active", "expired", "revoked"]);

export const Token = Entity("token", {
  id: Id,
  organization_id: Id,
  organization_name: Type.String(),
  name: Type.String(),
  prefix: TextOf("First characters of the secret, to identify it."),
  scopes: Type.Array(Type.Enum([...SCOPES])),
  models: Nullable(Type.Array(Type.String(), { description: "Allowed models; null for all." })),
  limits: Nullable(Limits),
  cap: Nullable(Type.Object({ amount: Amount, spent: Amount, held: Amount })),
  status: TokenStatus,
  created_at: Time,
  expires_at: Nullable(Time),
  revoked_at: Nullable(Time),
  last_used_at: Nullable(Time),
  successor_id: Nullable(Id),
  caller_id: TextOf("The first token of the rotations to it, by which budgets name it."),
  kind: Type.Enum(["secret", "identity"], {
    description: "identity: it belongs to a caller whom an identity provider identifies, and has no secret.",
  }),
  created_by: Nullable(
    TextOf(
      "Operator, identity or token that created it, or the first of its rotations; null: a command or the service.",
    ),
  ),
  pinned: Nullable(
    Type.Record(Type.String(), Type.Unsafe<string | null>({ type: ["string", "null"] }), {
      description: "Values of `metadata` that its requests always have.",
    }),
  ),
});
export type Token = Static<typeof Token>;
/** The secret is only in the response to the request that created the token. */
export const TokenWithSecret = Type.Object({ ...Token.properties, secret: Type.String() });

export type TokenWithSecret = Static<typeof TokenWithSecret>;

const Pinned = Type.Unsafe<Record<string, string>>({
  type: "object",
  minProperties: 1,
  maxProperties: PINS_MAX,
  propertyNames: { pattern: PIN_KEY.source, description: "keys of 1 to 64 characters, and not requested_model" },
  additionalProperties: { type: "string", minLength: 1, maxLength: LABEL_CHARACTERS_MAX },
  description: "Values of `metadata` that its requests always have: one that states another value is refused.",
});
const TERMS = {
  scopes: Type.Optional(Nullable(Type.Array(Type.Enum([...SCOPES]), { minItems: 1 }))),
  models: Type.Optional(Nullable(Type.Array(Type.String({ minLength: 1, maxLength: 200 }), { maxItems: 500 }))),
  limits: Type.Optional(Nullable(Limits)),
  cap: Type.Optional(Nullable(PositiveAmount)),
  expires_at: Type.Optional(Nullable(Time)),
  pinned: Type.Optional(Nullable(Pinned)),
};
export const NewToken = Strict({ organization_id: Id, name: Name, ...TERMS });
export type NewToken = Static<typeof NewToken>;
/** Absent terms stay unchanged; null stands for what a new token without the term has. */
export const TokenChange = Strict({ name: Type.Optional(Name), ...TERMS }, { minProperties: 1 });
export const RotatedToken = Type.Object({ ...TokenWithSecret.properties, replaces: Token });
export type RotatedToken = Static<typeof RotatedToken>;
