import { type Static, Type } from "typebox";
import { FinishReason, ReplyMessage } from "../chat/completion.ts";
import { SentRequest } from "../chat/request.ts";
import { CountOf, FlagOf, IntegerOf, ListOf, NumberOf, ObjectOf, OptionalKeys, TextOf } from "../schema.ts";
import { Amount, Day, Entity, Id, Nullable, PricesByClass, RetryCredit, Time, TokensByClass } from "./common.ts";

export const RequestStatus = Type.Enum([
  "running",
  "complete",
  "client_disconnected",
  "failed",
  "recovered",
  "refused",
]);
export type RequestStatus = Static<typeof RequestStatus>;

export const RequestSummary = Entity("request", {
  id: Id,
  request_id: TextOf("The `x-request-id` header of the response."),
  organization_id: Id,
  organization_name: Type.String(),
  token_id: Id,
  token_name: Nullable(Type.String()),
  model: Nullable(TextOf("Null for a refused request without a model.")),
  route: Nullable(TextOf("Provider, and its name of the model; null for a refused request.")),
  status: Type.Enum([...RequestStatus.enum], {
    description: "`refused`: rejected with an error before credits were held; a sample is stored for seven days.",
  }),
  failure: Nullable(TextOf("Error code.")),
  refusal: Nullable(
    ObjectOf("Only for refused requests; null for others.", {
      status: IntegerOf("HTTP status."),
      message: TextOf("Error message."),
      endpoint: TextOf("Method and route."),
      count: IntegerOf("Number of requests of the token with the same error that this entry represents."),
    }),
  ),
  is_streamed: Nullable(Type.Boolean()),
  tokens: TokensByClass,
  held: Amount,
  charged: Amount,
  user: Nullable(TextOf("The end user that the request names, or its label `user`.")),
  metadata: Nullable(Type.Record(Type.String(), Type.String())),
  provider_cost: Nullable(
    TextOf(
      "Cost that the provider reported, as a decimal number in its own unit; null if it reports none; for operators only.",
    ),
  ),
  created_at: Time,
  ended_at: Nullable(Time),
  first_token_ms: Nullable(Type.Integer()),
  duration_ms: Nullable(Type.Integer()),
});

export const RequestFilters = OptionalKeys({
  organization_id: Id,
  token_id: Id,
  model: Type.String({ minLength: 1, maxLength: 200 }),
  status: RequestStatus,
  failure: Type.String({ minLength: 1, maxLength: 100, description: "Error code." }),
  route: Type.String({
    minLength: 1,
    maxLength: 400,
    description: "Id of the provider, `/`, and its name of the model.",
  }),
  budget_id: Type.String({ minLength: 1, maxLength: 200, description: "Budget that counts the request." }),
  metadata_key: Type.String({ minLength: 1, maxLength: 200 }),
  metadata_value: Type.String({
    maxLength: 1000,
    description: "The value of `metadata_key` in the request's metadata.",
  }),
  charged_min: Type.Number({ minimum: 0, maximum: 1_000_000_000, description: "Minimum charge in credits." }),
  request_id: Id,
  from: Time,
  to: Time,
});

export const SummedRequests = Entity("request_sum", {
  key: Nullable(TextOf("Id, name or value of the group, or the beginning of its time; null for requests without one.")),
  name: Nullable(TextOf("Name of an organization, a token or a budget.")),
  organization_id: Nullable(Id),
  is_rest: FlagOf("True for the sum over all groups beyond the 500 highest of a page."),
  requests: Type.Integer(),
  failed: Type.Integer(),
  charged: Amount,
  input_tokens: Type.Integer(),
  output_tokens: Type.Integer(),
});
export type SummedRequests = Static<typeof SummedRequests>;

const PriceTier = ObjectOf(
  "What chose the prices of a charge among those of the route: the organization's price list, the day from which on they are in force, the service tier, and the length of the prompt. Null if the route has the same prices for all requests.",
  {
    price_list: Nullable(TextOf("The price list of the organization.")),
    from: Nullable(Day),
    service_tier: Nullable(TextOf("The service tier that the provider reported; of images, their quality and size.")),
    above_prompt_tokens: Nullable(IntegerOf("The prompt has more tokens.")),
    max_prompt_tokens: Nullable(IntegerOf("The prompt has at most as many tokens.")),
  },
);

export const RequestDetail = Type.Object({
  ...RequestSummary.properties,
  prices: Nullable(PricesByClass),
  price_tier: Nullable(PriceTier),
  basis: Nullable(
    Type.Enum(["reported", "counted", "bounded", "estimated"], {
      description:
        "Source of the charged token counts; `bounded`: the upstream reported more than the request can have.",
    }),
  ),
  ending: Nullable(
    TextOf("`complete`, `client_disconnected`, `upstream_failed`, `timed_out`, `service_failed` or `recovered`."),
  ),
  shortfall: Amount,
  credited: NumberOf("Credits refunded by an operator."),
  retry: RetryCredit,
  attempts: ListOf(
    "Empty if the first route answered and its reported tokens were charged. `reported`: the provider's token counts if others were charged.",
    {
      route: Type.String(),
      outcome: Type.String(),
      duration_ms: Type.Number(),
      reported: Type.Optional(TokensByClass),
    },
  ),
  provider_response_id: Nullable(
    TextOf("The provider's id of the response, to compare with its invoices and logs; for operators only."),
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
  draws: ListOf("Credits held (running) or spent (ended), by grant.", { grant_id: Id, amount: Amount }),
  keeps_conversations: FlagOf("True if the organization's prompts and answers are stored now."),
  has_conversation: FlagOf(
    "True if those of this request are stored: GET /requests/{id}/conversation, for the operator.",
  ),
  is_idempotent: FlagOf("True for a request with an Idempotency-Key; its response is stored for 24 h."),
});
export type RequestSummary = Static<typeof RequestSummary>;
export type RequestDetail = Static<typeof RequestDetail>;

export const KeptAnswer = Type.Object({
  message: ReplyMessage,
  finish_reason: Nullable(Type.Enum([...FinishReason.enum], { description: "Null if the answer was interrupted." })),
});
export type KeptAnswer = Static<typeof KeptAnswer>;

export const Conversation = Entity("conversation", {
  id: TextOf("The request's id."),
  organization_id: Id,
  request: Type.Unsafe<SentRequest>({
    ...SentRequest,
    description: "The body of the request. Images in `data:` URLs are replaced by their type and length.",
  }),
  answer: Nullable(KeptAnswer),
  is_truncated: FlagOf("True if a part was too long to be stored."),
  ended_at: Time,
  kept_until: Time,
});
export type Conversation = Static<typeof Conversation>;

export const ConversationRemoval = Entity("conversation_removal", {
  organization_id: Id,
  removed: CountOf("Number of conversations."),
});
export type ConversationRemoval = Static<typeof ConversationRemoval>;
