import { type Static, Type } from "typebox";
import { FlagOf, TextOf } from "../schema.ts";
import { ChangeOf, Entity, Id, Name, Nullable, Strict, Time } from "./common.ts";
import { DELIVERY_STATES, RECEIVER_FORMATS } from "./event-kinds.ts";

const Target = Type.String({
  minLength: 1,
  maxLength: 2_000,
  description: "An https:// address; for `mail` a mail address.",
});
const Kinds = Nullable(
  Type.Array(Type.String({ minLength: 1, maxLength: 40 }), {
    minItems: 1,
    maxItems: 40,
    description: "Kinds of events that it receives; null for all.",
  }),
);

export const Receiver = Entity("receiver", {
  id: Id,
  organization_id: Nullable(TextOf("Null: it receives the events of the whole service.")),
  name: Type.String(),
  format: Type.Enum([...RECEIVER_FORMATS]),
  target: TextOf(
    "Address. Who may not change receivers sees only the host of a webhook, and the beginning of its path.",
  ),
  kinds: Kinds,
  status: Type.Enum(["active", "failing", "disabled"]),
  failing_since: Nullable(Time),
  created_at: Time,
});
export type Receiver = Static<typeof Receiver>;
/** The secret is only in the response to the request that created it. */
export const ReceiverWithSecret = Type.Object({
  ...Receiver.properties,
  secret: TextOf("Signs deliveries; empty for mail."),
});
export const NewReceiver = Strict({
  organization_id: Type.Optional(Nullable(Id)),
  name: Name,
  format: Type.Enum([...RECEIVER_FORMATS]),
  target: Target,
  kinds: Type.Optional(Kinds),
});
export type NewReceiver = Static<typeof NewReceiver>;
export const ReceiverChange = ChangeOf({
  name: Name,
  target: Target,
  kinds: Kinds,
  enabled: FlagOf("False to send nothing more; true to begin again."),
});

export const WarningDelivery = Entity("delivery", {
  id: Id,
  receiver_id: Id,
  event_id: TextOf("The same in every attempt: `webhook-id`."),
  kind: Type.String(),
  organization_id: Nullable(Id),
  text: TextOf("The event in words, as in a mail."),
  data: Type.Record(Type.String(), Type.Unknown()),
  state: Type.Enum([...DELIVERY_STATES]),
  attempts: Type.Integer({ minimum: 0 }),
  result: Nullable(TextOf("Result of the last attempt.")),
  created_at: Time,
  attempted_at: Nullable(Time),
  next_attempt_at: Nullable(Time),
});
export type WarningDelivery = Static<typeof WarningDelivery>;
