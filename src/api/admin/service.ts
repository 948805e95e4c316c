import { type Static, Type } from "typebox";

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
