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

export const PlaygroundTokenRequest = Strict({
  organization_id: Type.Optional(Nullable(Id)),
});
export type PlaygroundTokenRequest = Static<typeof PlaygroundTokenRequest>;
export const PlaygroundToken = Type.Object({
  object: Type.Literal("playground_token"),
  token: Type.String({ description: "An access token for `/v1` that lives for minutes." }),
  organization_id: Id,
  keeps_conversations: Type.Boolean({
    description: "Whether what is asked with it is stored, as its organization has it.",
  }),
  expires_at: Time,
});
export type PlaygroundToken = Static<typeof PlaygroundToken>;

/** What the console shows of the service before anyone has signed in. */
export const ServiceFacts = Type.Object({
  object: Type.Literal("service"),
  version: Type.String(),
  guest_playground: Type.Object({
    open: Type.Boolean({ description: "Whether guests may use the playground without a token." }),
    organization_id: Type.String(),
    requests_per_minute: Type.Integer({ description: "Of one address." }),
    tokens_per_day: Type.Integer({ description: "Of all guests together." }),
    max_tokens: Type.Integer(),
  }),
  default_limits: Type.Object({
    requests_per_minute: Type.Integer(),
    tokens_per_minute: Type.Integer(),
    concurrent_requests: Type.Integer(),
  }),
  completions: Type.Object({
    max_tokens: Type.Union([Type.Integer(), Type.Null()], {
      description: "Highest `max_tokens` of a request; null: each model's own maximum.",
    }),
  }),
  conversation_days: Type.Integer({
    description:
      "How long prompts and answers are kept, only of organizations that the operator has turned it on for. Beside it the answer under an Idempotency-Key is kept for 24 h.",
  }),
});
export type ServiceFacts = Static<typeof ServiceFacts>;
