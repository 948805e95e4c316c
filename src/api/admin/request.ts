import { type Static, Type } from "typebox";
import { FinishReason, ReplyMessage } from "../completion.ts";
import { ChatCompletionRequest } from "../request.ts";
import { Amount, Id, Nullable, PageOf, PageQuery, PricesByClass, Strict, Time, TokensByClass } from "./common.ts";

export const REQUEST_STATUSES = ["running", "complete", "client_left", "failed", "recovered", "refused"] as const;
export type RequestStatus = (typeof REQUEST_STATUSES)[number];

export const RequestSummary = Type.Object({
  object: Type.Literal("request"),
  id: Id,
  request_id: Type.String({ description: "The header `x-request-id` of the answer." }),
  organization_id: Id,
  organization_name: Type.String(),
  token_id: Id,
  token_name: Nullable(Type.String()),
  model: Nullable(Type.String({ description: "Null for a refused request that named none." })),
  route: Nullable(Type.String({ description: "Provider and its own name of the model; null for a refused request." })),
  status: Type.Enum([...REQUEST_STATUSES], {
    description: "`refused`: answered with an error before any credits were held; kept for seven days, in samples.",
  }),
  failure: Nullable(Type.String({ description: "The error's code." })),
  refusal: Nullable(
    Type.Object(
      {
        status: Type.Integer({ description: "The HTTP status." }),
        message: Type.String({ description: "The error's message." }),
        endpoint: Type.String({ description: "Method and route." }),
        count: Type.Integer({ description: "How many requests of the same token with the same error it stands for." }),
      },
      { description: "Of a refused request; null for others." },
    ),
  ),
  is_streamed: Nullable(Type.Boolean()),
  tokens: TokensByClass,
  held: Amount,
  charged: Amount,
  created_at: Time,
  ended_at: Nullable(Time),
  first_token_ms: Nullable(Type.Integer()),
  duration_ms: Nullable(Type.Integer()),
});

/** One request explained. */
export const RequestDetail = Type.Object({
  ...RequestSummary.properties,
  prices: Nullable(PricesByClass),
  basis: Nullable(
    Type.Enum(["reported", "counted", "bounded", "estimated"], {
      description:
        "Where the charged tokens come from; `bounded`: the upstream reported more than the request can have.",
    }),
  ),
  ending: Nullable(Type.String({ description: "complete, client_left, upstream_failed, timed_out or recovered." })),
  shortfall: Amount,
  credited: Type.Number({ description: "Credits given back of it by hand." }),
  attempts: Type.Array(
    Type.Object({
      route: Type.String(),
      outcome: Type.String(),
      duration_ms: Type.Number(),
      reported: Type.Optional(TokensByClass),
    }),
    {
      description:
        "Empty where the first route answered and its report was charged. `reported`: the provider's report, where other tokens were charged.",
    },
  ),
  provider_response_id: Nullable(
    Type.String({
      description: "The provider's own id of the answer, to compare with its invoices and logs; for operators only.",
    }),
  ),
  provider_cost: Nullable(
    Type.String({
      description:
        "The cost that the provider reported, as a decimal number in its own unit; null where it reports none; for operators only.",
    }),
  ),
  events: Type.Array(
    Type.Object({
      sequence: Type.Integer(),
      charged: Amount,
      shortfall: Amount,
      tokens: TokensByClass,
      basis: Type.String(),
      ending: Type.String(),
      charged_at: Time,
    }),
  ),
  draws: Type.Array(Type.Object({ grant_id: Id, amount: Amount }), {
    description: "What was held (running) or taken (ended) of which grant.",
  }),
  metadata: Nullable(Type.Record(Type.String(), Type.String())),
  keeps_conversations: Type.Boolean({ description: "Whether its organization has prompts and answers kept now." }),
  has_conversation: Type.Boolean({
    description: "Whether those of this request are: GET /requests/{id}/conversation, for the operator.",
  }),
  is_idempotent: Type.Boolean({ description: "Whether it came with an Idempotency-Key: its answer is kept for 24 h." }),
});
export type RequestSummary = Static<typeof RequestSummary>;
export type RequestDetail = Static<typeof RequestDetail>;

export const RequestQuery = Strict({
  ...PageQuery,
  organization_id: Type.Optional(Id),
  token_id: Type.Optional(Id),
  model: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
  status: Type.Optional(Type.Enum([...REQUEST_STATUSES])),
  request_id: Type.Optional(Id),
  from: Type.Optional(Time),
  to: Type.Optional(Time),
});
export const RequestPage = PageOf(RequestSummary);

/** An answer as far as it was delivered. */
export const KeptAnswer = Type.Object({
  message: ReplyMessage,
  finish_reason: Nullable(Type.Enum([...FinishReason.enum], { description: "Null: it was cut off." })),
});
export type KeptAnswer = Static<typeof KeptAnswer>;

/** What was asked and answered in one request. */
export const Conversation = Type.Object({
  object: Type.Literal("conversation"),
  id: Type.String({ description: "The request's id." }),
  organization_id: Id,
  request: Type.Unsafe<ChatCompletionRequest>({
    ...ChatCompletionRequest,
    description: "The body as it was taken; of images sent as bytes only their kind and length.",
  }),
  answer: Nullable(KeptAnswer),
  is_truncated: Type.Boolean({ description: "Whether something was too long to be kept." }),
  ended_at: Time,
  kept_until: Time,
});
export type Conversation = Static<typeof Conversation>;

export const ConversationRemoval = Type.Object({
  object: Type.Literal("conversation_removal"),
  organization_id: Id,
  removed: Type.Integer({ minimum: 0, description: "How many conversations." }),
});
export type ConversationRemoval = Static<typeof ConversationRemoval>;
