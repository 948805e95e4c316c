import { type Static, Type } from "typebox";
import { FinishReason, ReplyMessage } from "../completion.ts";
import { ChatCompletionRequest } from "../request.ts";
import { Id, Nullable, Time } from "./common.ts";

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
