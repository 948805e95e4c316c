import { type Static, Type } from "typebox";
import { ORGANIZATION_ROLES, SERVICE_ROLES } from "../api/admin/roles.ts";
import { PIN_KEY, PINS_MAX } from "../api/principal.ts";
import { Group, OptionalKeys, Strict } from "./upstream-schema.ts";

/** Signature algorithms of RFC 7518 with a public key. A secret shared with an issuer could sign as the issuer. */
export const JWT_ALGORITHMS = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
] as const;

const Text = (options: object) =>
  Type.String({ pattern: "^[^\\s\\p{Cc}]{1,500}$", allowed: "1 to 500 characters without spaces", ...options });

const RoleRule = Strict({
  when: Type.Record(Type.String(), Type.Unsafe<string | boolean>({ type: ["string", "boolean"], minLength: 1 }), {
    // A key without a value counts as absent, so an empty group may be a mistake that would match everyone.
    minProperties: 1,
    allowed: "at least one claim with its value, as text, true or false",
    description:
      "Claims with their values: each claim is the value, or a list that contains it. A dot leads into a claim, as in `realm_access.roles`; `email` and `email_domain` count only if the issuer has verified the address.",
  }),
  role: Type.Enum([...SERVICE_ROLES, ...ORGANIZATION_ROLES], { description: "Role of those who match." }),
  ...OptionalKeys({
    organization: Type.Unsafe<string | { claim: string }>({
      ...Strict({ claim: Text({}) }),
      type: ["string", "object"],
      pattern: "^org_[0-9a-z_]{1,100}$",
      allowed: "the id of an organization, or a claim that contains it or the external id, as { claim: NAME }",
      description: "Organization of a role within an organization; the other roles have none.",
    }),
  }),
});

const IssuerSchema = Strict({
  issuer: Type.String({
    format: "issuer",
    description: "Issuer, as in the claim `iss`. Its metadata is read below this address.",
  }),
  ...OptionalKeys({
    name: Type.String({
      minLength: 1,
      maxLength: 100,
      description: "Label of its sign-in button; if absent, the host name.",
    }),
    clientId: Text({ description: "Client of the console at this issuer; if absent, no sign-in with it." }),
    clientSecret: Type.String({ minLength: 1, description: "Secret of this client." }),
  }),
  scopes: Type.Array(Type.String({ pattern: "^[\\x21\\x23-\\x5b\\x5d-\\x7e]{1,200}$" }), {
    default: ["openid", "email", "profile"],
    contains: { const: "openid" },
    maxItems: 50,
    allowed: "a list of scopes, one of them openid",
    description: "Scopes that a sign-in requests.",
  }),
  ...OptionalKeys({
    audience: Text({
      description: "Audience that JWT access tokens of this issuer must have; if absent, none is accepted.",
    }),
  }),
  algorithms: Type.Array(Type.Enum(JWT_ALGORITHMS), {
    default: ["RS256", "ES256", "EdDSA", "PS256"],
    minItems: 1,
    uniqueItems: true,
    description: `Allowed signature algorithms: ${JWT_ALGORITHMS.join(", ")}.`,
  }),
  roles: Type.Array(RoleRule, {
    minItems: 1,
    maxItems: 1_000,
    description: "Roles by claims: the first entry that matches counts. Without a match there is no access.",
  }),
  pins: Type.Record(Type.String(), Text({}), {
    default: {},
    maxProperties: PINS_MAX,
    propertyNames: { pattern: PIN_KEY.source },
    allowed: "at most 16 keys of `metadata` other than requested_model, with the name of a claim each",
    description:
      "Keys of `metadata` that always have the value of a claim, so that the caller cannot choose another one.",
  }),
});

/** Identity providers. */
export const IdentitySchema = Group(
  {
    issuers: Type.Array(IssuerSchema, {
      default: [],
      maxItems: 20,
      description: "Identity providers, which say who a person or a caller is; see identity.md.",
    }),
  },
  { reload: true },
);

export type IssuerSettings = Static<typeof IssuerSchema>;
