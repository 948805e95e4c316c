import { type Static, Type } from "typebox";
import { FlagOf, IntegerOf, ListOf, ObjectOf, TextOf } from "../schema.ts";
import { Entity, Id, Nullable, Time } from "./common.ts";
import { PERMISSIONS, ROLES } from "./roles.ts";

/** Who is signed in. Every nullable field is null without a session. */
export const Session = Entity("session", {
  role: Nullable(Type.Enum([...ROLES])),
  organization: Nullable(ObjectOf("Only for a member.", { id: Id, name: Type.String() })),
  token: Nullable(
    ObjectOf("The operator, or the token of the member. Null for a person at an identity provider.", {
      ...{ id: Id, name: Type.String(), prefix: Type.String() },
    }),
  ),
  person: Nullable(
    ObjectOf("Who signed in with an identity provider.", {
      ...{ id: Id, issuer: Type.String(), subject: Type.String(), name: Type.String() },
    }),
  ),
  sign_out_url: Nullable(
    TextOf("Address at which the identity provider ends its own session, after `DELETE /session`."),
  ),
  permissions: Type.Array(Type.Enum([...PERMISSIONS]), {
    description: "What the role permits; a guest's without a session.",
  }),
  may_complete: FlagOf("True if the playground may be used: `POST /admin/v1/playground/token`."),
  expires_at: Nullable(Time),
});
export type Session = Static<typeof Session>;

/** Address for the browser, which begins a sign-in with an identity provider. */
export const SignInAddress = Entity("sign_in_address", { url: Type.String() });
export type SignInAddress = Static<typeof SignInAddress>;

export const PlaygroundToken = Entity("playground_token", {
  token: TextOf("An access token for `/v1` that expires after some minutes."),
  organization_id: Id,
  keeps_conversations: FlagOf("True if the prompts and answers of its organization are stored."),
  expires_at: Time,
});
export type PlaygroundToken = Static<typeof PlaygroundToken>;

/** Public facts of the service, which the console shows without a session. */
export const ServiceFacts = Entity("service", {
  version: Type.String(),
  identity_providers: ListOf("Identity providers with which people sign in to the console.", {
    ...{ issuer: Type.String(), name: Type.String() },
  }),
  guest_playground: Type.Object({
    open: FlagOf("True if guests may use the playground without a token."),
    organization_id: Type.String(),
    requests_per_minute: IntegerOf("Per client address."),
    tokens_per_day: IntegerOf("All guests together."),
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
  conversation_days: IntegerOf(
    "Days for which prompts and answers are stored, only for organizations where the operator has enabled it. In addition, the response to a request with an Idempotency-Key is stored for 24 h.",
  ),
});
export type ServiceFacts = Static<typeof ServiceFacts>;
