import { type Static, Type } from "typebox";
import { Entity, Id, Nullable, Time } from "./common.ts";
import { PERMISSIONS, ROLES } from "./roles.ts";

/** Who is signed in. Every nullable field is null without a session. */
export const Session = Entity("session", {
  role: Nullable(Type.Enum([...ROLES])),
  organization: Nullable(Type.Object({ id: Id, name: Type.String() }, { description: "Only for a member." })),
  token: Nullable(
    Type.Object(
      { id: Id, name: Type.String(), prefix: Type.String() },
      { description: "The operator, or the token of the member. Null for a person at an identity provider." },
    ),
  ),
  person: Nullable(
    Type.Object(
      { id: Id, issuer: Type.String(), subject: Type.String(), name: Type.String() },
      { description: "Who signed in with an identity provider." },
    ),
  ),
  sign_out_url: Nullable(
    Type.String({
      description: "Address at which the identity provider ends its own session, after `DELETE /session`.",
    }),
  ),
  permissions: Type.Array(Type.Enum([...PERMISSIONS]), {
    description: "What the role permits; a guest's without a session.",
  }),
  may_complete: Type.Boolean({ description: "True if the playground may be used: `POST /admin/v1/playground/token`." }),
  expires_at: Nullable(Time),
});
export type Session = Static<typeof Session>;

/** Address for the browser, which begins a sign-in with an identity provider. */
export const SignInAddress = Entity("sign_in_address", { url: Type.String() });
export type SignInAddress = Static<typeof SignInAddress>;

export const PlaygroundToken = Entity("playground_token", {
  token: Type.String({ description: "An access token for `/v1` that expires after some minutes." }),
  organization_id: Id,
  keeps_conversations: Type.Boolean({
    description: "True if the prompts and answers of its organization are stored.",
  }),
  expires_at: Time,
});
export type PlaygroundToken = Static<typeof PlaygroundToken>;

/** Public facts of the service, which the console shows without a session. */
export const ServiceFacts = Entity("service", {
  version: Type.String(),
  identity_providers: Type.Array(Type.Object({ issuer: Type.String(), name: Type.String() }), {
    description: "Identity providers with which people sign in to the console.",
  }),
  guest_playground: Type.Object({
    open: Type.Boolean({ description: "True if guests may use the playground without a token." }),
    organization_id: Type.String(),
    requests_per_minute: Type.Integer({ description: "Per client address." }),
    tokens_per_day: Type.Integer({ description: "All guests together." }),
    max_tokens: Type.Integer(),
  }),
  default_limits: Type.Object({
    requests_per_minute: Type.Integer(),
    tokens_per_minute: Type.Integer(),
    concurrent_requests: Type.Integer(),
  }),
  completions: Type.Object({
    max_tokens: Type.Union([Type.Integer(), Type.Null()], {
      description: "Maximum `max_tokens` of a request; null for each model's own maximum.",
    }),
  }),
  conversation_days: Type.Integer({
    description:
      "Days for which prompts and answers are stored, only for organizations where the operator has enabled it. In addition, the response to a request with an Idempotency-Key is stored for 24 h.",
  }),
});
export type ServiceFacts = Static<typeof ServiceFacts>;
